"""kill -9 at random moments of a loaded writer: what was acknowledged is there, and what ran was authorized.

``GUARDED_CRASH_RUNS`` says how often; the test of record takes 200 and more.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

from guarded_core.audit.durable import DurableToolAuditTrail
from guarded_core.audit.event import Outcome
from guarded_core.audit.repair import repair
from guarded_core.audit.verify import read, unsettled, verify
from guarded_core.ground.errors import ToolAuditTrailError

RUNS = int(os.environ.get("GUARDED_CRASH_RUNS", "8"))
KEYS = {"k": b"crash-secret-of-32-bytes-xxxxxxxx"}

# Threads and tasks that authorize, run and settle calls, and tell of each step once it is on record.
WRITER = """
import asyncio, itertools, os, sys, threading
from dataclasses import replace
from guarded_core.audit.durable import DurableToolAuditTrail
from guarded_core.audit.event import AuditEvent, Outcome

trail = DurableToolAuditTrail.open(sys.argv[1], keys={"k": b"crash-secret-of-32-bytes-xxxxxxxx"},
                                   max_records=40, auto_rotate=True)

def call(who):
    for number in itertools.count():
        name = f"{sys.argv[2]}-{who}-{number}"
        yield name, AuditEvent(outcome=Outcome.AUTHORIZED, time_ns=1, call_id=name, tool="t", approval_reason="x" * 900)

def tell(step, name):
    os.write(1, f"{step} {name}\\n".encode())

def in_thread(who):
    for name, authorized in call(who):
        trail.append(authorized)
        tell("authorized", name)
        tell("ran", name)
        trail.append(replace(authorized, outcome=Outcome.SUCCEEDED))
        tell("succeeded", name)

async def in_task(who):
    for name, authorized in call(who):
        await trail.aappend(authorized)
        tell("authorized", name)
        tell("ran", name)
        await trail.aappend(replace(authorized, outcome=Outcome.SUCCEEDED))
        tell("succeeded", name)

async def tasks():
    await asyncio.gather(*(in_task(f"task{n}") for n in range(8)))

for n in range(3):
    threading.Thread(target=in_thread, args=(f"thread{n}",), daemon=True).start()
asyncio.run(tasks())
"""


def killed_writer(path: Path, run: int, delay: float) -> list[tuple[str, str]]:
    """Let a writer work for so many seconds from its first word on, kill it, and return what it told."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WRITER, str(path), str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline()]
        reader = threading.Thread(target=lambda: lines.extend(writer.stdout or []))
        reader.start()
        time.sleep(delay)
        writer.kill()
        reader.join()
    assert writer.returncode == -9
    words = [line.decode().split() for line in lines if line.endswith(b"\n")]
    return [(step, name) for step, name in words]


def reopened(path: Path) -> DurableToolAuditTrail:
    """The trail, repaired first where its writer died in the middle of a line."""
    try:
        return DurableToolAuditTrail.open(path, keys=KEYS)
    except ToolAuditTrailError as error:
        if error.code != "torn_tail":
            raise
    assert repair(path, KEYS, by="the test") is not None
    return DurableToolAuditTrail.open(path, keys=KEYS)


def test_kill_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    """Every acknowledged record is there, every call that ran has its Authorized event, and the trail reopens."""
    moments = random.Random()
    told: dict[str, set[str]] = defaultdict(set)
    for run in range(RUNS):
        path = tmp_path / f"audit-{run // 10}.log"  # ten crashes to a trail
        if run % 10 == 0:
            told.clear()
        for step, name in killed_writer(path, run, moments.uniform(0, 0.08)):
            told[step].add(name)
        with reopened(path) as trail:
            anchor = trail.head()
        recorded: dict[str, set[str]] = defaultdict(set)
        for _, event in read(path, KEYS):
            recorded[event.outcome].add(event.call_id)
        assert told["authorized"] - recorded[Outcome.AUTHORIZED] == set()
        assert told["ran"] - recorded[Outcome.AUTHORIZED] == set()
        assert told["succeeded"] - recorded[Outcome.SUCCEEDED] == set()
        lost = recorded[Outcome.AUTHORIZED] - recorded[Outcome.SUCCEEDED]
        assert {event.call_id for event in unsettled(path, KEYS)} == lost
        assert verify(path, KEYS, anchor=anchor).closed
    assert told["succeeded"]
