"""The processes that train one model together, as torchrun starts them.

`torchrun --nproc-per-node 8 -m regard train ...` runs the same program eight times. Each learns
from its share of every batch; what they must agree on goes through here. gloo carries what lies on
the CPU, NCCL what lies on a GPU. Where one process ends the others cannot go on: they end too,
within seconds, and one of them says which it was.
"""

import os
import socket
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from regard.errors import RegardError, TrainingError, printable

T = TypeVar("T")

WAIT = timedelta(days=7)
"""For what the first process does alone: to prepare a corpus may take hours."""
SECONDS_TO_MEET = 300.0
"""From the first process's start until it has heard of all others."""
SECONDS_TO_DIE = 2.0
"""A killed process whose memory the system is still taking back may need so long."""


class OutOfMemory(TrainingError):
    """The memory of some process does not hold a batch; nothing has been learned from it."""


@dataclass(frozen=True)
class Processes:
    """This process among those that train together; alone, most of this does nothing.

    All processes call each method alike. Where another has ended it raises TrainingError.
    """

    rank: int = 0
    count: int = 1
    store: Any = None
    """torch's key-value store, which outlives any one of them."""

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.rank == 0

    def sum(self, *numbers: int) -> list[int]:
        """The sums over all processes; waits for them, but not for a GPU."""
        if self.count == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.int64)
        self.add_up(total)
        return total.tolist()

    def add_up(self, tensor: Tensor) -> None:
        """Make a tensor the sum of everyone's."""
        if self.count > 1:
            with self._noticing_an_end():
                dist.all_reduce(tensor)

    def gather(self, whole: Tensor, part: Tensor) -> None:
        """Fill `whole` with everyone's part, by rank."""
        with self._noticing_an_end():
            dist.all_gather_single(whole, part)

    def add_up_shares(self, part: Tensor, whole: Tensor) -> None:
        """Make `part` this process's part of the sum of everyone's `whole`."""
        with self._noticing_an_end():
            dist.reduce_scatter_single(part, whole)

    def agree_on_memory(self, enough: bool = True) -> None:
        """Raise OutOfMemory in all processes alike, where it was not enough in one."""
        if self.sum(not enough)[0]:
            raise OutOfMemory("a batch does not fit the memory")

    def give(self, tensor: Tensor) -> None:
        """Make a tensor that of the first process."""
        if self.count > 1:
            with self._noticing_an_end():
                dist.broadcast(tensor, 0)

    def all(self, value: T) -> list[T]:
        """Everyone's value, by rank; it can be pickled."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        with self._noticing_an_end():
            dist.all_gather_object(values, value)
        return values

    def first_does(self, work: Callable[[], T]) -> T:
        """What `work` gives the first process; the others wait for it as long as it takes."""
        if self.count == 1:
            return work()
        result = work() if self.first else None
        if self.first:
            self.store.set("done", "")
        with self._noticing_an_end():
            self.store.wait(["done"], WAIT)
        return cast(T, self.all(result)[0])

    def refuse_differences(self, **values: object) -> None:
        """Raise TrainingError, naming the rank, where another process has other values."""
        for rank, others in enumerate(self.all(values)):
            for name, value in values.items():
                if others[name] != value:
                    raise TrainingError(
                        f"rank {rank} has another {name} than rank {self.rank}: {others[name]}, "
                        f"not {value}: give every process the same files and options"
                    )

    @contextmanager
    def _noticing_an_end(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            ended = self._ended()
            names = " and ".join(f"rank {rank}" for rank in ended)
            if not names:
                names = f"a process on another host ({str(error).splitlines()[0]})"
            raise TrainingError(
                f"{names} has ended, and the others cannot go on alone: the same command goes on "
                "from the last checkpoint, with as many processes as you like"
            ) from None

    def introduce(self) -> None:
        """Let the others know where to look whether this process lives."""
        self.store.set(f"process/{self.rank}", f"{socket.gethostname()} {os.getpid()}")

    def _ended(self) -> list[int]:
        """The ranks that have; a killed process lets its connections go before it is gone."""
        until = time.monotonic() + SECONDS_TO_DIE
        while not (ended := [rank for rank in range(self.count) if not self._lives(rank)]):
            if time.monotonic() > until:
                break
            time.sleep(0.01)
        return ended

    def _lives(self, rank: int) -> bool:
        """Whether a process runs, as far as can be seen from this host."""
        with suppress(OSError, RuntimeError):
            host, process = self.store.get(f"process/{rank}").decode().split()
            if host == socket.gethostname():
                stat = Path(f"/proc/{process}/stat")
                return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"
        return True

    def is_first_to_tell(self) -> bool:
        """Whether none of the others has said yet why all of them end."""
        try:
            return int(self.store.add("ending", 1)) == 1
        except RuntimeError:  # it went with the host that had it
            return True


ALONE = Processes()


@contextmanager
def together() -> Iterator[Processes]:
    """The processes that torchrun started, or this one alone.

    Where one raises, it ends at once, and so do the others: what they are in the midst of cannot be
    called off. One of them prints what was wrong.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    processes = _met()
    try:
        yield processes
    except (Exception, KeyboardInterrupt) as error:
        _end(processes, error)
    finally:
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
            f"the processes do not find one another ({reason}): start them with torchrun"
        ) from None
    return processes


def _agreed_name(store: Store, rank: int, count: int) -> str:
    """A new name, the same in all processes.

    When torchrun starts all of them again, its store still has what those before them have left
    there. The first one answers whoever it finds greeting; only one that lives takes the answer.
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
            raise RuntimeError(f"nothing is heard of rank {min(missing)}")
        for other in missing:
            if store.check([f"greeting/{other}"]):
                store.set(f"answer/{store.get(f'greeting/{other}').decode()}", name)
        time.sleep(0.01)
    return name


def _end(processes: Processes, error: BaseException) -> NoReturn:
    """Print an error, unless another process was first, and leave without cleaning up."""
    expected = isinstance(error, RegardError | KeyboardInterrupt)
    if processes.is_first_to_tell():
        if not expected:
            traceback.print_exception(error)
        what = printable(str(error) or type(error).__name__)
        print(f"regard: rank {processes.rank}: {what}", file=sys.stderr, flush=True)  # noqa: T201
    sys.stdout.flush()
    os._exit(2 if expected else 1)
