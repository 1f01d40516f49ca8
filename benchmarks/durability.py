"""What durability costs: appends against a raw append + fdatasync loop on the same disk, and verification.

Run from the repository's folder: ``python -m benchmarks.durability``. It writes about 2 GB into a temporary folder
there, and removes it.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.report import Measurement
from guarded_core.audit.chain import AuditKeys
from guarded_core.audit.durable import DurableToolAuditTrail
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.audit.frames import encode_event
from guarded_core.audit.group_commit import Entry
from guarded_core.audit.room import Room
from guarded_core.audit.verify import verify
from guarded_core.audit.writer import Item, Pending, TrailWriter
from guarded_core.tools.spec import ToolRisk

ROUNDS = 12
APPENDS = 100  # a round
MIB = 1 << 20
KEYS = AuditKeys({"bench": b"benchmark-secret-of-32-bytes-long"})


def event(size: int = 400) -> AuditEvent:
    """An Authorized event whose line in a trail has about `size` bytes."""
    return AuditEvent(
        outcome=Outcome.AUTHORIZED,
        time_ns=1_750_000_000_000_000_000,
        call_id="c" * 32,
        tool="issue_refund",
        principal="user-17",
        session_id="s" * 20,
        risk=ToolRisk.FINANCIAL,
        policy="p" * 64,
        on_behalf_of=("principal-" + "x" * 190,) * (max(0, size - 400) // 203),
    )


def measure_appends(folder: Path) -> list[Measurement]:
    """Raw and guarded appends, in turns, so that a change of the machine's mood meets both."""
    times: list[list[float]] = [[], [], []]
    task_rates: list[float] = []
    thread_rates: list[float] = []
    raw_fd = os.open(folder / "raw", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    line = b"x" * 400
    one = event()

    def raw() -> None:
        os.write(raw_fd, line)
        os.fdatasync(raw_fd)

    with (
        DurableToolAuditTrail.open(folder / "plain", max_records=1 << 30, max_bytes=1 << 30) as plain,
        DurableToolAuditTrail.open(folder / "keyed", max_records=1 << 30, max_bytes=1 << 30, keys=KEYS) as keyed,
    ):
        for _ in range(ROUNDS):
            take_turns((raw, partial(plain.append, one), partial(keyed.append, one)), times)
            task_rates.append(asyncio.run(rate_of_tasks(plain, one)))
            thread_rates.append(rate_of_threads(plain, one))
    os.close(raw_fd)
    raw_median, plain_median, keyed_median = map(statistics.median, times)
    raw_rate = len(times[0]) / sum(times[0])
    single, tasks = plain_median / raw_median, statistics.median(task_rates) / raw_rate
    return [
        Measurement(name="raw append + fdatasync, median", value=raw_median * 1e6, unit="µs"),
        Measurement(name="append, one at a time, of raw", value=single, unit="×", wanted="≤ 1.3", met=single <= 1.3),
        Measurement(name="the same with a key", value=keyed_median / raw_median, unit="×"),
        Measurement(name="raw, one sync a record", value=raw_rate, unit="records/s"),
        Measurement(name="64 asyncio appenders", value=statistics.median(task_rates), unit="records/s"),
        Measurement(name="the same, of raw", value=tasks, unit="×", wanted="≥ 4", met=tasks >= 4),
        Measurement(name="64 threads", value=statistics.median(thread_rates), unit="records/s"),
    ]


def take_turns(actions: Sequence[Callable[[], None]], times: list[list[float]]) -> None:
    """Call each in turn, `APPENDS` times, and add the seconds each call takes to its list."""
    for _ in range(APPENDS):
        for action, seconds in zip(actions, times, strict=True):
            start = time.perf_counter()
            action()
            seconds.append(time.perf_counter() - start)


async def rate_of_tasks(trail: DurableToolAuditTrail, one: AuditEvent) -> float:
    """Records a second from 64 tasks."""

    async def appender() -> None:
        for _ in range(APPENDS):
            await trail.aappend(one)

    start = time.perf_counter()
    await asyncio.gather(*(appender() for _ in range(64)))
    return 64 * APPENDS / (time.perf_counter() - start)


def rate_of_threads(trail: DurableToolAuditTrail, one: AuditEvent) -> float:
    """Records a second from 64 threads."""

    def appender() -> None:
        for _ in range(APPENDS // 10):
            trail.append(one)

    threads = [threading.Thread(target=appender) for _ in range(64)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 64 * (APPENDS // 10) / (time.perf_counter() - start)


def write_trail(path: Path, size: int, record: int, keys: AuditKeys | None = None) -> None:
    """Make a trail of `size` bytes in one segment, a thousand records a sync."""
    one = event(record)
    pending = Pending(one, encode_event(one), None)
    writer = TrailWriter(str(path), keys, Room(2 * size + MIB, 1 << 30, rotates=True))
    while path.stat().st_size < size:
        entries: list[Entry[Item]] = [Entry(pending) for _ in range(1000)]
        writer.commit(entries)
        for entry in entries:
            entry.outcome()
    writer.close()


def measure_verification(folder: Path) -> list[Measurement]:
    """Megabytes (10⁶) a second, the best of five, from the page cache."""
    found = []
    for record, keys, wanted in ((4096, None, 600), (400, None, 200), (4096, KEYS, 0), (400, KEYS, 0)):
        path = folder / f"verify-{record}-{keys is not None}"
        write_trail(path, 64 * MIB, record, keys)
        rates = []
        for _ in range(5):
            start = time.perf_counter()
            verify(path, keys)
            rates.append(path.stat().st_size / 1e6 / (time.perf_counter() - start))
        name = f"verification, {record} B records{' with a key' if keys else ''}"
        bound = f"≥ {wanted}" if wanted else ""
        found.append(Measurement(name=name, value=max(rates), unit="MB/s", wanted=bound, met=max(rates) >= wanted))
    return found


def measure_memory(folder: Path) -> list[Measurement]:
    """Verify a trail of 1 GiB in a fresh process, and see how much memory that took beyond importing."""
    path = folder / "large"
    write_trail(path, 1024 * MIB, 4096)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "benchmarks.durability", "--verify", str(path)]
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    grown, seconds, records = (float(text) for text in out.split())
    return [
        Measurement(name="memory to verify 1 GiB", value=grown, unit="MiB", wanted="≤ 32", met=grown <= 32),
        Measurement(name="time to verify 1 GiB", value=seconds, unit="s"),
        Measurement(name="records in it", value=records, unit=""),
    ]


def peak_memory() -> float:
    """The most memory that this process has held, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux, the other figure begins with that of the parent process
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) * 1024 / MIB
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MIB


def run() -> list[Measurement]:
    """Measure everything."""
    with tempfile.TemporaryDirectory(dir=".", prefix=".durability-") as name:
        folder = Path(name)
        return [*measure_appends(folder), *measure_verification(folder), *measure_memory(folder)]


def main() -> int:
    """Print the table; 1 where a bound is not kept."""
    if sys.argv[1:2] == ["--verify"]:
        before, start = peak_memory(), time.perf_counter()
        records = verify(sys.argv[2]).records
        print(peak_memory() - before, time.perf_counter() - start, records)
        return 0
    measurements = run()
    print("| What | Measured | Wanted | |\n|---|---|---|---|")
    for m in measurements:
        figure = f"{m.value:,.2f}" if m.value < 100 else f"{m.value:,.0f}"
        print(f"| {m.name} | {figure} {m.unit} | {m.wanted} | {'' if not m.wanted else 'yes' if m.met else '**no**'} |")
    return 0 if all(m.met for m in measurements) else 1


if __name__ == "__main__":
    sys.exit(main())
