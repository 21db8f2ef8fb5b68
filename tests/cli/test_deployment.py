"""The files that run the server: Dockerfile, compose.yaml, and the unit for systemd.

Their syntax is checked, and the commands that they name are run, on a small model.
"""

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

ROOT = Path(__file__).parents[2]
INSTRUCTIONS = {
    *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL"),
    *("ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
}


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile and what follows each; refuses what is none."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    found = [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in joined)]
    assert {name for name, _ in found} <= INSTRUCTIONS, found
    assert all(rest for _, rest in found)
    return found


DOCKERFILE = instructions((ROOT / "Dockerfile").read_text("utf-8"))


def the(name: str) -> str:
    """What follows an instruction of the last stage, in which it stands once."""
    last = max(i for i, (one, _) in enumerate(DOCKERFILE) if one == "FROM")
    (rest,) = (rest for one, rest in DOCKERFILE[last:] if one == name)
    return rest


def health_check() -> list[str]:
    """The command of HEALTHCHECK, without its options."""
    options, _, command = the("HEALTHCHECK").partition(" CMD ")
    assert re.fullmatch(r"(--[a-z-]+=\d+s? *)+", options)
    words: list[str] = json.loads(command)
    return words


def compose() -> dict[str, Any]:
    """compose.yaml; its one service has only keys of the Compose specification."""
    yaml = pytest.importorskip("yaml")
    text = (ROOT / "compose.yaml").read_text("utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    known = {
        *("build", "cap_drop", "command", "environment", "image", "init", "ports", "read_only"),
        *("restart", "security_opt", "stop_grace_period", "tmpfs", "volumes"),
    }
    assert content.keys() == {"services", "volumes"}
    assert content["services"].keys() == {"regard"}
    assert content["services"]["regard"].keys() <= known
    service: dict[str, Any] = content["services"]["regard"]
    named = [volume.split(":")[0] for volume in service["volumes"] if volume[0] not in "./"]
    assert named == list(content["volumes"])
    return service


def unit() -> dict[str, str]:
    """The settings of the unit; each stands once."""
    lines = (ROOT / "packaging" / "regard.service").read_text("utf-8").splitlines()
    pairs = [line.partition("=")[::2] for line in lines if re.match(r"[A-Z]\w+=", line)]
    assert len({key for key, _ in pairs}) == len(pairs)
    return dict(pairs)


@contextmanager
def answering(command: list[str], folder: Path, port: str | None) -> Iterator[str]:
    """A server by this command, and its address; `port` is replaced by a free one.

    When the block ends, SIGTERM must end the server with status 0.
    """
    program, *arguments = command
    assert Path(program).name == "regard"
    rest = [*arguments, "--port", "0"] if port is None else swapped(arguments, port, "0")
    server = subprocess.Popen(
        [sys.executable, "-m", "regard", *rest],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        assert address, server.communicate()[1]
        yield address
        server.send_signal(signal.SIGTERM)
        _, errors = server.communicate(timeout=60)
        assert server.returncode == 0, errors
    finally:
        server.kill()
        server.communicate()


def swapped(words: list[str], old: str, new: str) -> list[str]:
    assert words.count(old) == 1
    return [new if word == old else word for word in words]


@pytest.fixture
def models(made: Path, tmp_path: Path) -> Path:
    """A folder with one model, as the files expect it: models/en-de."""
    shutil.copytree(made / "model", tmp_path / "models" / "en-de")
    return tmp_path / "models"


def test_the_image_runs_as_nobody_in_particular_and_has_no_cuda() -> None:
    stages = [rest for name, rest in DOCKERFILE if name == "FROM"]
    assert stages == ["python:3.11-slim AS build", "python:3.11-slim"]
    assert int(the("USER")) > 0
    assert the("EXPOSE") == "5000"
    installing = [rest for name, rest in DOCKERFILE if name == "RUN" and "pip install" in rest]
    assert "--extra-index-url https://download.pytorch.org/whl/cpu torch" in installing[0]
    assert installing[1].endswith("'.[serve,exchange]'")
    assert any("PIP_CONSTRAINT=" in rest for name, rest in DOCKERFILE if name == "ENV")


def test_all_that_the_wheel_is_made_of_is_sent_to_docker() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    first, *others = [line for line in lines if not line.startswith("#")]
    assert first == "*"
    sent = {line[1:] for line in others if line.startswith("!")}
    assert sent == {"constraints.txt", "docs", "LICENSE", "pyproject.toml", "README.md", "src"}
    assert all((ROOT / name).exists() for name in sent)
    copied = [rest.split()[:-1] for name, rest in DOCKERFILE if name == "COPY"]
    files = [file for words in copied for file in words if not file.startswith(("--", "/", "."))]
    assert all(any(fnmatch(file, name) for name in sent) for file in files)


def test_compose_takes_from_the_container_what_the_server_does_not_need() -> None:
    service = compose()
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "./models:/models:ro" in service["volumes"]
    assert f"cache:{json.loads(the('VOLUME'))[0]}" in service["volumes"]
    assert service["ports"] == [f"127.0.0.1:5000:{the('EXPOSE')}"]


def test_compose_trusts_the_proxy_of_its_machine() -> None:
    headers = pytest.importorskip("uvicorn.middleware.proxy_headers")
    trusted = compose()["environment"]["FORWARDED_ALLOW_IPS"]

    def client(peer: str) -> str:
        seen: list[str] = []

        async def app(scope: Any, *_: Any) -> None:
            seen.append(scope["client"][0])

        sent = [(b"x-forwarded-for", b"203.0.113.9")]
        scope = {"type": "http", "client": (peer, 1), "headers": sent, "scheme": "http"}
        asyncio.run(headers.ProxyHeadersMiddleware(app, trusted)(scope, None, None))
        return seen[0]

    assert client("172.18.0.1") == client("192.168.48.1") == "203.0.113.9"
    assert client("198.51.100.7") == "198.51.100.7"


def test_the_container_answers_on_health(models: Path) -> None:
    assert the("WORKDIR") == "/models"
    command = json.loads(the("ENTRYPOINT")) + compose()["command"]
    python, *check = health_check()
    assert python == "python"
    with answering(command, models, None) as address:
        port = address.rpartition(":")[2]
        asking = [word.replace(":5000/", f":{port}/") for word in check]
        assert asking != check
        subprocess.run([sys.executable, *asking], check=True, timeout=60)
    dead = subprocess.run([sys.executable, *asking], capture_output=True, timeout=60)
    assert dead.returncode == 1


def test_the_unit_answers_on_health(models: Path) -> None:
    settings = unit()
    text = (ROOT / "packaging" / "serve.env").read_text("utf-8")
    variables = dict(
        line.partition("=")[::2] for line in text.splitlines() if line and line[0] != "#"
    )
    command = settings["ExecStart"]
    for name, value in variables.items():
        assert f"${name}" in command
        (unquoted,) = shlex.split(value)
        command = command.replace(f"${name}", unquoted)
    assert "$" not in command
    with (
        answering(command.split(), models, "5000") as address,
        urlopen(f"{address}/health", timeout=60) as answer,
    ):
        assert answer.status == 200
    assert settings["WantedBy"] == "multi-user.target"


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("there is no systemd-analyze: apt-get install systemd")
    text = (ROOT / "packaging" / "regard.service").read_text("utf-8")
    copy = tmp_path / "regard.service"
    copy.write_text(text.replace("/opt/regard/bin/regard", sys.executable), "utf-8")
    verify = ["systemd-analyze", "verify", "--man=no", copy]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    about_it = [line for line in done.stderr.splitlines() if "regard" in line]
    assert (done.returncode, about_it) == (0, [])
    copy.write_text(copy.read_text("utf-8").replace("RemoveIPC=", "RemoveICP="), "utf-8")
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert "RemoveICP" in done.stderr, "verify would notice a wrong setting"
