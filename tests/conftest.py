"""Fixtures that several test files share."""

import atexit
import gc
import os
import shutil
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

import shapes
from tabs import Tab


def pytest_configure(config: pytest.Config) -> None:
    """Hide GPUs from all tests, unless `-m gpu` asks for those that need one.

    Otherwise each test that trains would do so on the GPU, and compile a program for minutes.
    """
    if config.option.markexpr != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collector the libraries and the tests, which stay until the end.

    It would look through all of them again and again, for some 15 seconds of the whole run.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def libraries_are_kept() -> None:
    """Spare the garbage collector also what the tests of earlier files have loaded.

    Each run of training collects garbage at its end.
    """
    gc.collect()
    gc.freeze()


atexit.register(gc.unfreeze)  # at the end, libraries complain of what nobody has freed
shapes.check_shapes()


def keep_files_in_memory() -> None:
    """Make pytest keep its temporary folders in /dev/shm, if programs can be run from there.

    A file that is written whole or not at all waits for the disk several times, and the tests write
    thousands. On the disk of a virtual machine, each of these waits took 8 ms.
    """
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK):
        room = os.statvfs(memory)
        if room.f_bavail * room.f_frsize > 4e9 and not room.f_flag & os.ST_NOEXEC:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


keep_files_in_memory()

# Threads that wait for each other would otherwise keep cores busy that other tests could have.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# nohup and a shell's & have their children ignore these, and so would those that tests start.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def regard_data() -> Path:
    """The folder of real corpora, as named by REGARD_DATA; the test is skipped without it."""
    folder = os.environ.get("REGARD_DATA")
    if not folder:
        pytest.skip("REGARD_DATA does not name a folder of corpora")
    path = Path(folder)
    if not path.is_dir():
        pytest.skip(f"REGARD_DATA={folder} is not a folder")
    return path


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser of Playwright; the test is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def tabs(chromium: Any) -> dict[str, Tab]:
    """The tabs of the module, by the options of their contexts."""
    return {}


@pytest.fixture
def tab(chromium: Any, tabs: dict[str, Tab]) -> Iterator[Callable[..., Tab]]:
    """A function that gives an empty tab of this size, colour scheme and options of its context.

    Tests with the same options have the same tab, one after the other: a tab of its own is a new
    process of the browser, which takes longer than most tests do on their page.
    """
    given: list[Tab] = []

    def give(width: int = 1280, scheme: str = "light", **options: Any) -> Tab:
        key = repr(sorted(options.items()))
        if key not in tabs:
            tabs[key] = Tab(chromium.new_context(**options).new_page())
        tabs[key].page.set_viewport_size({"width": width, "height": 800})
        tabs[key].page.emulate_media(color_scheme=scheme)
        given.append(tabs[key])
        return tabs[key]

    yield give
    for one in given:
        one.empty()
