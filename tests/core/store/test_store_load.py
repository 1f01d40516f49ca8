"""Many processes on one session, some of them killed, the server too: nothing is spent twice, nothing is lost.

``GUARDED_LOAD=full`` runs 8 processes of 16 threads; an ordinary run has 4 of 4.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

from guarded_core.approvals.request import RequestState
from guarded_core.audit.event import Outcome
from guarded_core.rules.case import Window
from guarded_core.store.base import Query
from guarded_core.store.sql import SqlStore

FULL = os.environ.get("GUARDED_LOAD") == "full"
PROCESSES, THREADS = (8, 16) if FULL else (4, 4)
BUDGET, RATE = (2000, 500) if FULL else (240, 60)
WINDOW = Window(key="rate", interval_ns=24 * 3600 * 10**9)
TIMEOUT = 600


class Load:
    """Worker processes on one session of one database, and what they left behind."""

    def __init__(self, store: SqlStore, url: str, folder: Path, sample: Any) -> None:
        self.store = store
        self.url = url
        self.file = folder / "effects"
        self.file.touch()
        request = sample.request(store, state=RequestState.APPROVED, session_id="user-17#load")
        store.add_request(request, max_pending=1)
        self.plan = {"threads": THREADS, "budget": BUDGET, "rate": RATE, "request": request.id}
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, count: int) -> None:
        """Start that many processes."""
        worker = Path(__file__).with_name("worker.py")
        command = [sys.executable, str(worker), self.url, str(self.file), json.dumps(self.plan)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.processes += [subprocess.Popen(command, env=environment) for _ in range(count)]

    @property
    def effects(self) -> list[str]:
        """What ran, as "kind call_id"."""
        return self.file.read_text().splitlines()

    def wait_for(self, effects: int) -> None:
        """Wait until so many calls ran; every process must still be at work."""
        deadline = time.monotonic() + TIMEOUT
        while len(self.effects) < effects:
            assert time.monotonic() < deadline
            assert all(process.poll() is None for process in self.processes)
            time.sleep(0.005)

    def kill(self, count: int) -> None:
        """Kill that many processes, the oldest first."""
        for process in self.processes[:count]:
            process.kill()
            process.wait(TIMEOUT)
        del self.processes[:count]

    def finish(self) -> None:
        """Wait until every process found that nothing is left to take."""
        assert [process.wait(TIMEOUT) for process in self.processes] == [0] * len(self.processes)
        self.processes.clear()

    def check(self) -> tuple[set[str], set[str], set[str]]:
        """Check what must hold after any accident; returns the calls that were authorized, ran, and ended."""
        events = list(self.store.trail())
        authorized = [f"{event.tool} {event.call_id}" for event in events if event.outcome is Outcome.AUTHORIZED]
        ended = [f"{event.tool} {event.call_id}" for event in events if event.outcome is Outcome.SUCCEEDED]
        assert Counter(name.split()[0] for name in authorized) == {"budget": BUDGET, "rate": RATE, "approval": 1}
        for names in (authorized, self.effects, ended):
            assert len(set(names)) == len(names)
        assert set(ended) <= set(self.effects) <= set(authorized)
        unsettled = {f"{event.tool} {event.call_id}" for event in self.store.trail().unsettled()}
        assert unsettled == set(authorized) - set(ended)
        self.check_spent()
        assert self.store.trail().verify().records == len(events)
        return set(authorized), set(self.effects), set(ended)

    def check_spent(self) -> None:
        """What was spent is what was authorized."""
        names = {"principal": "user-17", "session_id": "user-17#load", "root_id": "user-17#load", "tool": "refund"}
        found = self.store.load(Query(**names, counters=("budget", "all"), windows=(WINDOW,)))
        assert found.spent == {"budget": BUDGET, "all": BUDGET + RATE + 1}
        assert found.used == {"rate": RATE}
        assert found.requests == ()


@pytest.fixture
def new_load(tmp_path: Path, open_store: Callable[..., SqlStore], sample: Any) -> Iterator[Callable[[str], Load]]:
    """Prepares a load on the database of a URL."""
    made: list[Load] = []

    def new_load(url: str) -> Load:
        made.append(Load(open_store(url), url, tmp_path, sample))
        return made[-1]

    yield new_load
    for load in made:
        load.kill(len(load.processes))


def test_exactly_what_may_run_runs(url: str, new_load: Callable[[str], Load]) -> None:
    """Budget, rate and approval of one session let exactly as many calls through as they say, and each one ends."""
    load = new_load(url)
    load.start(PROCESSES)
    load.finish()
    authorized, ran, ended = load.check()
    assert authorized == ran == ended
    assert load.store.trail().verify().open == 0


def test_killed_workers(url: str, new_load: Callable[[str], Load]) -> None:
    """Workers that are killed in mid-call leave nothing half-taken; exactly what may have run is reported."""
    load = new_load(url)
    load.start(PROCESSES)
    for round in range(1, 4):
        load.wait_for(BUDGET * round // 5)
        load.kill(PROCESSES // 2)
        load.start(PROCESSES // 2)
    load.finish()
    authorized, _, ended = load.check()
    killed = 3 * (PROCESSES // 2)
    assert len(authorized - ended) <= killed * THREADS
    assert load.store.trail().verify().open <= killed * 4


class Server:
    """A PostgreSQL server of this test's own, so that it can be killed."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries = binaries
        self._folder = folder  # its path is short: a socket's has at most 107 bytes
        self.url = f"postgresql+psycopg://guarded@/postgres?host={folder}"
        options = ["--username", "guarded", "--auth", "trust", "--encoding", "UTF8", "--locale", "C"]
        self._run("initdb", *options)
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), "--pgdata", str(self._folder / "data"), *arguments]
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            command = ["runuser", "-u", "postgres", "--", *command]
        subprocess.run(command, check=True, cwd=self._folder, stdout=subprocess.DEVNULL)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-k '{self._folder}' -c listen_addresses="
        self._run("pg_ctl", "--wait", "--log", str(self._folder / "log"), "--options", options, "start")

    def kill(self) -> None:
        """Kill all of it at once, as a power cut would, and wait until it is gone."""
        first = int((self._folder / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        for process in (first, *map(int, children)):
            os.kill(process, signal.SIGKILL)
        while any(Path(f"/proc/{process}/stat").exists() for process in (first, *children)):
            time.sleep(0.01)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of this test's own."""
    pytest.importorskip("psycopg")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if not found or not Path("/proc/self/task").exists():
        pytest.skip("no PostgreSQL to start: /usr/lib/postgresql/*/bin is not there")
    folder = Path(tempfile.mkdtemp(prefix="guarded-", dir="/tmp"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    server = None
    try:
        server = Server(found[-1], folder)
        yield server
    finally:
        if server is not None:
            server.kill()
        shutil.rmtree(folder)


def test_killed_server(server: Server, new_load: Callable[[str], Load]) -> None:
    """A server that is killed twice has spent exactly what is on record as authorized, and lost nothing that ran."""
    load = new_load(server.url)
    load.start(PROCESSES)
    for round in (1, 3):
        load.wait_for(BUDGET * round // 5)
        server.kill()
        server.start()
    load.finish()
    authorized, _, ended = load.check()
    assert len(authorized - ended) <= 2 * PROCESSES * THREADS
