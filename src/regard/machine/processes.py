"""Processes, started by torchrun, that train one model together.

`torchrun --nproc-per-node 8 -m regard train ...` runs the same program eight times. Each process
learns from its share of the batches of each step, and communicates with the others through this
module: by gloo for tensors on the CPU, by NCCL for tensors on a GPU. When one process ends, the
others cannot continue: they end too, mostly within seconds. The process that fails reports its
error; if it was killed, one of the others reports which process has ended.
"""

import os
import socket
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from regard.errors import RegardError, TrainingError, printable
from regard.machine.cores import started_together

_Value = TypeVar("_Value")

PROC = Path("/proc")
"""The folder in which Linux shows its processes; macOS, for example, has none."""
_WAIT = timedelta(days=7)
"""The other processes wait at most this long for work that only the first process does. For
example, preparing data may take hours."""
SECONDS_TO_MEET = 300.0
"""The first process waits at most this long until all others have started."""
SECONDS_TO_DIE = 2.0
"""A killed process is expected to disappear within this time: the system first frees its memory."""

SECONDS_TO_NOTICE = 5.0
"""A process ends itself once it has waited this long for another process that has ended."""

MOST_NUMBERS = 12
"""`Processes.agree_on_memory` sums at most this many numbers over all processes."""


class OutOfMemory(TrainingError):
    """A batch does not fit the memory of a process; the model has not learned from the batch."""


@dataclass(frozen=True)
class Processes:
    """This process and those that train with it: `count` processes, with ranks from 0.

    Methods that communicate must be called by every process, in the same order. They raise
    TrainingError if another process has ended. A process without others has rank 0 and count 1;
    most of these methods then return at once.
    """

    rank: int = 0
    count: int = 1
    store: Any = None
    """torch's key-value store, which outlives each single process; None if `count` is 1."""
    _waits: list[float] = field(default_factory=list, compare=False)
    """The start times (`time.monotonic`) of this process's waits; empty if it is not waiting."""

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and prints messages."""
        return self.rank == 0

    def sum(self, *numbers: int) -> list[int]:
        """Sum each number over all processes; this does not wait for work queued on a GPU."""
        if self.count == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.int64)
        self.add_up(total)
        return total.tolist()

    def add_up(self, tensor: Tensor) -> None:
        """All-reduce, in place: replace the tensor by its sum over all processes."""
        if self.count > 1:
            with self._noticing_an_end():
                dist.all_reduce(tensor)

    def gather(self, whole: Tensor, part: Tensor) -> None:
        """All-gather: fill `whole` with the `part` of every process, in the order of ranks.

        `whole` is `count` times as long as `part`.
        """
        with self._noticing_an_end():
            dist.all_gather_single(whole, part)

    def add_up_shards(self, part: Tensor, whole: Tensor) -> None:
        """Reduce-scatter: sum `whole` over all processes, and set `part` to this process's part.

        The sum is divided into `count` equal parts, in the order of ranks.
        """
        with self._noticing_an_end():
            dist.reduce_scatter_single(part, whole)

    def agree_on_memory(self, enough: bool = True, numbers: Sequence[int] = ()) -> list[int]:
        """Sum each number over all processes; if one process lacks memory, all raise OutOfMemory.

        `enough` is False if this process is out of memory. Such a process may call this method from
        another line of code than the others, and with more or fewer numbers. Therefore zeros are
        added: all calls exchange MOST_NUMBERS numbers and `enough`.
        """
        assert len(numbers) <= MOST_NUMBERS
        unused = [0] * (MOST_NUMBERS - len(numbers))
        short, *sums = self.sum(not enough, *numbers, *unused)
        if short:
            raise OutOfMemory("a batch does not fit the memory")
        return sums[: len(numbers)]

    def give(self, tensor: Tensor) -> None:
        """Broadcast, in place: replace the tensor by the first process's tensor."""
        if self.count > 1:
            with self._noticing_an_end():
                dist.broadcast(tensor, 0)

    def all(self, value: _Value) -> list[_Value]:
        """The `value` of every process, in the order of ranks; each value must be picklable."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        with self._noticing_an_end():
            dist.all_gather_object(values, value)
        return values

    def first_does(self, work: Callable[[], _Value]) -> _Value:
        """Run `work` in the first process only, and return its result in all processes.

        The result must be picklable. The others wait for up to seven days.
        """
        if self.count == 1:
            return work()
        done = f"done/{self.store.add(f'calls/{self.rank}', 1)}"  # the key has this call's number
        result = work() if self.first else None
        if self.first:
            self.store.set(done, "")
        with self._noticing_an_end():
            self.store.wait([done], _WAIT)
        return cast(_Value, self.all(result)[0])

    def refuse_differences(self, **values: object) -> None:
        """Raise TrainingError, which names a rank, if a process has different values."""
        for rank, others in enumerate(self.all(values)):
            for name, value in values.items():
                if others[name] != value:
                    raise TrainingError(
                        f"{name} differs: {others[name]} on rank {rank}, {value} on rank "
                        f"{self.rank}: give every process the same files and options"
                    )

    @contextmanager
    def _noticing_an_end(self) -> Iterator[None]:
        self._waits.append(time.monotonic())
        try:
            yield
        except RuntimeError as error:
            names = " and ".join(f"rank {rank}" for rank in self._ended())
            if not names:
                names = f"a process on another host ({str(error).splitlines()[0]})"
            raise _without(names) from None
        finally:
            self._waits.pop()

    def watch(self, over: threading.Event) -> None:
        """End this process if it waits for another process of this host that has ended.

        Usually the connection to that process breaks, which ends the wait. But sometimes gloo goes
        on waiting, although the connection is closed. This method runs in a thread of its own, and
        returns when `over` is set.
        """
        while not over.wait(SECONDS_TO_NOTICE / 5):
            began = min(self._waits, default=time.monotonic())
            if time.monotonic() - began > SECONDS_TO_NOTICE:
                gone = [rank for rank in range(self.count) if not self._lives(rank)]
                if gone and began in self._waits:
                    _end(self, _without(" and ".join(f"rank {rank}" for rank in gone)))

    def introduce(self) -> None:
        """Store this process's host and id, so that other processes can check whether it runs."""
        self.store.set(f"process/{self.rank}", f"{_place()} {os.getpid()}")

    def _ended(self) -> list[int]:
        """The ranks of the processes that have ended.

        The connections of a process break a moment before the process has ended. So if no process
        has ended yet, wait for one, but at most SECONDS_TO_DIE.
        """
        until = time.monotonic() + SECONDS_TO_DIE
        while not (ended := [rank for rank in range(self.count) if not self._lives(rank)]):
            if time.monotonic() > until:
                break
            time.sleep(0.01)
        return ended

    def _lives(self, rank: int) -> bool:
        """Whether the process with this rank runs; True if this is unknown.

        It is unknown if the process is on another host or in another container, if the store cannot
        be read, or if there is no /proc.
        """
        with suppress(OSError, RuntimeError):
            place, process = self.store.get(f"process/{rank}").decode().split()
            if place == _place() and Path(PROC, "self").exists():
                stat = Path(PROC, process, "stat")
                return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"
        return True

    def is_first_to_report(self) -> bool:
        """True if no other process has reported an error; the caller then reports its own error.

        Also True if the store cannot be reached.
        """
        try:
            return int(self.store.add("ending", 1)) == 1
        except RuntimeError:  # the store cannot be reached: its host has ended
            return True


def _place() -> str:
    """Text that identifies this host and container; only the host's name if there is no /proc."""
    host = socket.gethostname()
    with suppress(OSError):
        boot = Path(PROC, "sys/kernel/random/boot_id").read_text().strip()
        host = f"{host}/{boot}/{Path(PROC, 'self/ns/pid').readlink()}"
    return host


def _without(names: str) -> TrainingError:
    return TrainingError(
        f"{names} has ended, and the others cannot continue without it: the same command continues "
        "from the last checkpoint, with any number of processes"
    )


ALONE = Processes()


@contextmanager
def together() -> Iterator[Processes]:
    """The processes that torchrun started, or `ALONE` if there is only this one.

    If one of several processes raises an Exception or KeyboardInterrupt in the block, that process
    ends at once. The others end soon after, because they cannot continue without that process.
    One of the processes prints the error. Raises TrainingError if the processes cannot connect to
    each other.
    """
    if started_together() == 1:
        yield ALONE
        return
    processes = _met()
    over = threading.Event()
    threading.Thread(target=processes.watch, args=[over], daemon=True).start()
    try:
        yield processes
    except (Exception, KeyboardInterrupt) as error:
        _end(processes, error)
    finally:
        over.set()
        dist.destroy_process_group()


def _met() -> Processes:
    try:
        shared, rank, count = next(iter(rendezvous("env://")))
        store = PrefixStore(_agreed_name(shared, rank, count), shared)
        processes = Processes(rank, count, PrefixStore("regard", store))
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=count)
        processes.introduce()
        dist.barrier()
    except (RuntimeError, ValueError) as error:
        reason = str(error).split("\n")[0]
        raise TrainingError(
            f"the processes cannot connect to each other ({reason}): start them with torchrun"
        ) from None
    return processes


def _agreed_name(store: Store, rank: int, count: int) -> str:
    """Agree with the other processes on a new name, as a prefix for their keys in the store.

    If torchrun has restarted the processes, its store still has the keys of the old processes. So
    every process except the first stores a greeting with a new name of its own. The first process
    answers every greeting, even a greeting of an old process, with the agreed name. Each new
    process confirms that it has read its answer; the first process waits for all confirmations.
    """
    name = uuid.uuid4().hex
    if rank:
        store.set(f"greeting/{rank}", name)
        name = store.get(f"answer/{name}").decode()
        store.set(f"{name}/{rank}", "here")
        return name
    missing = set(range(1, count))
    until = time.monotonic() + SECONDS_TO_MEET
    while missing := {other for other in missing if not store.check([f"{name}/{other}"])}:
        if time.monotonic() > until:
            raise RuntimeError(f"rank {min(missing)} has not started")
        for other in missing:
            if store.check([f"greeting/{other}"]):
                store.set(f"answer/{store.get(f'greeting/{other}').decode()}", name)
        time.sleep(0.01)
    return name


def _end(processes: Processes, error: BaseException) -> NoReturn:
    """Print the error, unless another process has printed one; exit at once without cleaning up."""
    expected = isinstance(error, RegardError | KeyboardInterrupt)
    if processes.is_first_to_report():
        if not expected:
            traceback.print_exception(error)
        what = printable(str(error) or type(error).__name__)
        print(f"regard: rank {processes.rank}: {what}", file=sys.stderr, flush=True)  # noqa: T201
    sys.stdout.flush()
    os._exit(2 if expected else 1)
