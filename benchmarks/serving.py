"""Measure `regard serve` under load: many clients compared with one, then ten times as many.

    python benchmarks/serving.py runs/demo=en-de --text runs/demo/corpus/valid.en

Clients ask for single sentences. First there is one client, which sends one request after another;
then 64 clients at once, for a minute; then ten times as many against a short queue, while /health
is asked ten times a second. The figures are written to standard output as JSON. The clients are a
process of their own, and share the machine with the server.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from regard.files.lines import read_lines

QUEUE = 128
QUARTERS = 4
"""How often the server's memory is read during a load; it is also read before the load."""


class Client:
    """A client with one connection, which stays open; requests follow one another on it."""

    def __init__(self, port: int):
        self.port = port

    async def __aenter__(self) -> "Client":
        await self._connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def _connect(self) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, str]]:
        """Send a request; return the status and the headers of the answer."""
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        self.writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        start = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = start.decode().rstrip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        await self.reader.readexactly(int(headers["content-length"]))
        return int(first.split()[1]), headers


async def client(port: int, sentences: list[str], until: float) -> list[tuple[int, float]]:
    """Send requests until that time; return the status and the seconds of each.

    After a refusal, the client waits for the time that the server names.
    """
    found = []
    chosen = random.Random(os.urandom(8))
    async with Client(port) as connection:
        while time.perf_counter() < until:
            asked = {"q": chosen.choice(sentences), "source": "en", "target": "de"}
            started = time.perf_counter()
            status, headers = await connection.ask("POST", "/translate", json.dumps(asked).encode())
            found.append((status, time.perf_counter() - started))
            if status in (429, 503):
                await asyncio.sleep(int(headers["retry-after"]))
    return found


def health(port: int, seconds: float) -> list[tuple[int, float]]:
    """Ask for /health ten times a second; return the status and the seconds of each answer.

    This is to run in a process that does nothing else.
    """

    async def ask() -> list[tuple[int, float]]:
        found = []
        until = time.perf_counter() + seconds
        async with Client(port) as connection:
            while time.perf_counter() < until:
                started = time.perf_counter()
                status, _ = await connection.ask("GET", "/health")
                found.append((status, time.perf_counter() - started))
                await asyncio.sleep(0.1)
        return found

    return asyncio.run(ask())


def load(
    server: subprocess.Popen[str], port: int, sentences: list[str], clients: int, seconds: float
) -> dict[str, Any]:
    """Put a load of `clients` clients on the server for `seconds`; return the figures."""
    held = [memory(server.pid)]

    async def watch() -> None:
        for _ in range(QUARTERS):
            await asyncio.sleep(seconds / QUARTERS)
            held.append(memory(server.pid))

    async def ask() -> list[list[tuple[int, float]]]:
        until = time.perf_counter() + seconds
        watching = asyncio.ensure_future(watch())
        asked = await asyncio.gather(*(client(port, sentences, until) for _ in range(clients)))
        await watching
        return asked

    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        probing = pool.submit(health, port, seconds)
        started = time.perf_counter()
        all_of_them = [one for some in asyncio.run(ask()) for one in some]
        wall = time.perf_counter() - started
        probe = probing.result()
    statuses = dict(sorted(Counter(status for status, _ in all_of_them).items()))
    good = sorted(s for status, s in all_of_them if status == 200)
    probes = sorted(s for _, s in probe)
    if not good:
        sys.exit(f"no translation within {wall:.0f} s: give more --seconds (answers: {statuses})")
    return {
        "clients": clients,
        "seconds": round(wall, 1),
        "statuses": statuses,
        "translations_a_second": round(len(good) / wall, 1),
        "median_ms": round(1000 * statistics.median(good), 1),
        "p95_ms": round(1000 * good[int(0.95 * len(good))], 1),
        "health_statuses": dict(Counter(status for status, _ in probe)),
        "health_median_ms": round(1000 * statistics.median(probes), 1),
        "health_p95_ms": round(1000 * probes[int(0.95 * len(probes))], 1),
        "health_worst_ms": round(1000 * probes[-1], 1),
        "memory_mib": list(map(round, held)),
        "load_average": round(os.getloadavg()[0], 1),
    }


def measured(
    server: subprocess.Popen[str], sentences: list[str], clients: int, seconds: float
) -> dict[str, Any]:
    """The figures of the three loads, which follow one that warms up."""
    assert server.stdout is not None
    port = int(server.stdout.readline().rpartition(":")[2])
    load(server, port, sentences, clients, seconds / 6)
    runs = {}
    for name, count, share in (
        ("one after another", 1, 0.5),
        ("at once", clients, 1.0),
        ("overload", 10 * clients, 0.5),
    ):
        runs[name] = load(server, port, sentences, count, share * seconds)
        print(name, runs[name], file=sys.stderr)
    return runs


def memory(pid: int) -> float:
    """Resident MiB of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="MODEL=en-de")
    parser.add_argument("--text", type=Path, required=True, help="sentences, one a line")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--precision", default="fastest")
    given = parser.parse_args()
    sentences = list(islice(read_lines(given.text), 1000))
    command = [sys.executable, "-m", "regard", "serve", given.model, "--port", "0", "--quiet"]
    command += ["--queue", str(QUEUE), "--threads", str(given.threads)]
    command += ["--precision", given.precision]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            runs = measured(server, sentences, given.clients, given.seconds)
        finally:
            server.terminate()
    status = server.returncode
    one, many = runs["one after another"], runs["at once"]
    result = {
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "queue": QUEUE,
        "precision": given.precision,
        "speedup": round(many["translations_a_second"] / one["translations_a_second"], 2),
        "p95_over_median": round(many["p95_ms"] / many["median_ms"], 2),
        "exit_status": status,
        "runs": runs,
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
