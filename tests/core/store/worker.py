"""One process under load: spends the budget, the rate and the approval of one session with several threads.

``python worker.py URL EFFECTS PLAN``: PLAN is JSON with ``threads``, ``budget``, ``rate`` and ``request`` (an id). Each
call that may run leaves its line in the file EFFECTS, as a tool would leave its effect in the world.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar

from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.ground.ids import new_id
from guarded_core.rules.case import Reservation, Slot, Window
from guarded_core.store.base import Change, Conflict, Counter, Settlement
from guarded_core.store.ledger import CallState
from guarded_core.store.sql import SqlStore

T = TypeVar("T")

SESSION = "user-17#load"
WINDOW = Window(key="rate", interval_ns=24 * 3600 * 10**9)


def event(kind: str, outcome: Outcome, call_id: str) -> AuditEvent:
    """An event of a call; its kind is its tool's name."""
    return AuditEvent(
        outcome=outcome, time_ns=time.time_ns(), call_id=call_id, tool=kind, principal="user-17", session_id=SESSION
    )


def change(kind: str, plan: dict[str, Any], approval: Any) -> Change:
    """The commit of a new call of that kind."""
    every = Counter(key="all", limit=1 << 40)
    parts: dict[str, Any] = {
        "budget": {"counters": (Counter(key="budget", limit=plan["budget"]), every)},
        "rate": {"counters": (every,), "reservation": Reservation(slots=(_slot(plan["rate"]),))},
        "approval": {"counters": (every,), "requests": (approval,)},
    }[kind]
    return Change(event=event(kind, Outcome.AUTHORIZED, new_id()), root_id=SESSION, **parts)


def _slot(limit: int) -> Slot:
    return Slot(window=WINDOW, amount=Decimal(1), limit=Decimal(limit), rule="rate")


def work(store: SqlStore, effects: int, plan: dict[str, Any], approval: Any) -> None:
    """Make calls of every kind until nothing is left to take."""
    kinds = ["budget", "rate", "approval"]
    while kinds:
        for kind in list(kinds):
            wanted = change(kind, plan, approval)
            try:
                store.commit(wanted)
            except Conflict:
                kinds.remove(kind)
                continue
            except Exception:  # the store is not available: this call is denied, the next may go through
                continue
            call_id = wanted.event.call_id
            os.write(effects, f"{kind} {call_id}\n".encode())
            end = event(kind, Outcome.SUCCEEDED, call_id)
            try:
                store.settle(Settlement(event=end, claimed=False, state=CallState.DONE))
            except Exception:  # on record as unsettled
                continue


def patiently(read: Callable[[], T]) -> T:
    """What `read` returns once it can."""
    while True:
        try:
            return read()
        except Exception:  # the server is being killed
            time.sleep(0.1)


def main(url: str, path: str, plan: dict[str, Any]) -> None:
    """Work with as many threads as the plan says."""
    effects = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with patiently(lambda: SqlStore.open(url, connections=4)) as store:
        approval = patiently(lambda: store.request(plan["request"]))
        threads = [threading.Thread(target=work, args=(store, effects, plan, approval)) for _ in range(plan["threads"])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
