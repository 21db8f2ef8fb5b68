"""Checkpoints: directories RUN/checkpoints/step-N, sealed by a manifest with checksums.

Damaged checkpoints are skipped with a warning if there is an undamaged one.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.errors import ModelError, Unreadable
from regard.files.manifest import read_manifest, unseal, write_sealed
from regard.files.regular import reason
from regard.files.tensors import read_tensors, write_tensors
from regard.files.whole import remove_directory
from regard.run.sharding import Optimizer

FINGERPRINTS = ("data", "tokenizer")
"""Names of checksums in a checkpoint's manifest, which show whether data or tokenizer changed."""
_NAME = re.compile(r"step-(\d+)")


class Checkpoint(NamedTuple):
    """A verified checkpoint on disk."""

    path: Path
    manifest: dict[str, Any]

    @property
    def step(self) -> int:
        """The number of optimizer steps made."""
        return int(self.manifest["step"])

    @property
    def processes(self) -> int:
        """How many processes trained together; 0 at step 0 of a run that began with a model.

        Raises ModelError if the checkpoint cannot be read.
        """
        names = read_tensors(self.path / "optimizer.safetensors")
        return sum(name.startswith("random.cpu") for name in names)

    def weights(self) -> dict[str, Tensor]:
        """The fp32 weights by parameter name; raises ModelError if they cannot be read."""
        return read_tensors(self.path / "weights.safetensors")


RandomStates = dict[str, Tensor]
"""States of random generators by name: "cpu" and "cuda" for the first process, "cpu.1" and "cuda.1"
for the next one."""


class Keep(NamedTuple):
    """Which checkpoints a save keeps: the newest ones, and those nearest to the step `best`."""

    newest: int
    averaged: int = 0
    """How many checkpoints nearest to the step `best` are kept."""
    best: int = 0
    """The step with the best validation; with 0, only the newest checkpoints are kept."""

    def choose(self, found: Sequence[Path]) -> set[Path]:
        """The checkpoints of `found` that are kept; `found` is in the order of their steps."""
        around = _by_distance(found, self.best)[: self.averaged] if self.best else []
        return {*found[-self.newest :], *around}


def save(
    directory: Path,
    weights: dict[str, Tensor],
    moments: dict[str, Tensor],
    about: dict[str, Any],
    keep: Keep,
    randoms: Sequence[RandomStates] = (),
) -> Path:
    """Write the checkpoint `directory/step-N`; remove checkpoints that `keep` does not choose.

    N is about["step"], and the manifest includes all of `about`. `weights` and `moments` are an
    optimizer's named weights and state. `randoms` has the random states of all processes, by rank.
    A checkpoint with about["extra"] serves only to continue from: it does not count for `keep`, and
    the next save removes it. Checkpoints of later steps are removed, too. All of them are damaged,
    because the run would have continued from one that is not. Returns the path of the new
    checkpoint. Raises RegardError if the checkpoint cannot be written.
    """
    path = directory / f"step-{about['step']}"

    def fill(folder: Path) -> None:
        write_tensors(folder / "weights.safetensors", weights)
        states = {f"random.{name}": state for one in randoms for name, state in one.items()}
        write_tensors(folder / "optimizer.safetensors", moments | states)

    remove_directory(path)  # an existing checkpoint is damaged: the run did not continue from it
    write_sealed(path, fill, about)
    found = paths(directory)
    earlier = [other for other in found[: found.index(path)] if not _is_extra(other)]
    kept = keep.choose(earlier if about.get("extra") else [*earlier, path])
    for other in found:
        if other not in kept and other != path:
            remove_directory(other)
    return path


def restore(checkpoint: Checkpoint, optimizer: Optimizer) -> RandomStates:
    """Put weights and moments into the optimizer; return the random states of all processes.

    Raises ModelError if a file cannot be read, and KeyError or RuntimeError if its tensors do not
    fit the optimizer.
    """
    state = read_tensors(checkpoint.path / "optimizer.safetensors")
    names = [name for name in state if name.startswith("random.")]
    randoms = {name.removeprefix("random."): state.pop(name) for name in names}
    optimizer.restore(checkpoint.weights(), state)
    return randoms


def random_states(rank: int = 0) -> RandomStates:
    """The states of this process's random generators, by the names of `RandomStates`."""
    states = {_named("cpu", rank): torch.get_rng_state()}
    if torch.cuda.is_available():
        states[_named("cuda", rank)] = torch.cuda.get_rng_state()
    return states


def set_random_states(states: RandomStates, rank: int, seed: Sequence[int]) -> None:
    """Restore this process's random generators from the entries of `states` for its `rank`.

    A generator without such an entry is seeded with `seed` and the rank, so that each process draws
    different numbers. The GPU has no entry if the checkpoint was made without a GPU.
    """
    words = np.random.SeedSequence([*seed, rank]).generate_state(1, np.uint64)
    own = int(words[0] >> np.uint64(1))
    on_cpu, on_gpu = (states.get(_named(device, rank)) for device in ("cpu", "cuda"))
    if on_cpu is None:
        torch.manual_seed(own)
    else:
        torch.set_rng_state(on_cpu)
    if not torch.cuda.is_available():
        return
    if on_gpu is None:
        torch.cuda.manual_seed(own)
    else:
        torch.cuda.set_rng_state(on_gpu)


def _named(device: str, rank: int) -> str:
    return f"{device}.{rank}" if rank else device


def paths(directory: Path) -> list[Path]:
    """The checkpoints in a folder, damaged or not, in the order of their steps.

    A folder that does not exist, or is a file, has none. Raises Unreadable if the folder cannot be
    read, or is a link to a folder that is missing, for example because its file system is not
    mounted.
    """
    try:
        names = [path.name for path in directory.iterdir()]
    except OSError as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError) and not directory.is_symlink():
            return []
        link = f", a link to {directory.readlink()}" if directory.is_symlink() else ""
        raise Unreadable(
            f"{directory}{link}: its checkpoints cannot be read: {reason(error)}: make them "
            f"available again, or remove {directory} to begin anew"
        ) from None
    found = [(int(match[1]), match[0]) for match in map(_NAME.fullmatch, names) if match]
    return [directory / name for _, name in sorted(found)]


def _by_distance(found: Sequence[Path], step: int) -> list[Path]:
    """The checkpoints, nearest to a step first; of two equally near ones, the later comes first."""
    return sorted(found, key=lambda path: (abs(step_of(path) - step), -step_of(path)))


def step_of(path: Path) -> int:
    """The step in the name of a checkpoint."""
    return int(path.name.removeprefix("step-"))


def newest(directory: Path, count: int, warn: Callable[[str], None]) -> list[Checkpoint]:
    """The newest `count` undamaged checkpoints, newest first; damaged ones are skipped.

    `warn` is called for each damaged checkpoint that is skipped. The list is shorter if there are
    fewer undamaged checkpoints. Raises ModelError if all are damaged, and also if a checkpoint that
    may be undamaged cannot be read: otherwise, the run would continue from an earlier checkpoint,
    and remove the unreadable one.
    """
    return _undamaged(directory, reversed(paths(directory)), count, warn)


def to_average(
    directory: Path, step: int, count: int, warn: Callable[[str], None]
) -> list[Checkpoint]:
    """The `count` undamaged checkpoints nearest to a step; the newest ones if `step` is 0.

    The nearest or newest one comes first. Extra checkpoints, which serve only to continue from, are
    taken only if there are too few other checkpoints, and come last. Raises ModelError in the same
    cases as `newest`.
    """
    found = paths(directory)
    order = _by_distance(found, step) if step else found[::-1]
    return _undamaged(directory, sorted(order, key=_is_extra), count, warn)


def _undamaged(
    directory: Path, candidates: Iterable[Path], count: int, warn: Callable[[str], None]
) -> list[Checkpoint]:
    whole: list[Checkpoint] = []
    damaged: list[ModelError] = []
    for path in candidates:
        if len(whole) == count:
            break
        try:
            whole.append(opened(path))
        except Unreadable as error:
            raise ModelError(f"{error}; or remove {path} to do without it") from None
        except ModelError as error:
            if path.exists():  # otherwise, a run that is still training has removed it
                damaged.append(error)
    if damaged and not whole:
        raise ModelError(
            f"{directory}: no checkpoint is complete ({damaged[0]}): put one back from a copy, "
            "or remove all of them to start again"
        )
    for problem in damaged:
        warn(f"skipping a damaged checkpoint: {problem}")
    return whole


def opened(path: Path) -> Checkpoint:
    """Open and verify the checkpoint at `path`; raises ModelError if it is missing or damaged."""
    manifest = unseal(path)
    step = step_of(path)
    whole = manifest.keys() >= {"state", "batches", *FINGERPRINTS} and all(
        isinstance(manifest[counts], dict)
        and all(isinstance(n, int | float) and 0 <= n < 2**63 for n in manifest[counts].values())
        for counts in ("state", "batches")
    )
    if manifest.get("step") != step or not whole:
        raise ModelError(f"{path}: its manifest does not describe a checkpoint of step {step}")
    return Checkpoint(path, manifest)


def _is_extra(path: Path) -> bool:
    try:
        return bool(read_manifest(path).get("extra"))
    except (OSError, ValueError):
        return False  # a damaged manifest is no error here: `opened` verifies the checkpoint
