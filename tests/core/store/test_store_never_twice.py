"""What every store does for calls that a framework enters again: paused calls go on once, denials count once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from guarded_core.audit.event import Outcome
from guarded_core.store.base import Change, Conflict, Settlement, Store
from guarded_core.store.ledger import CallState


def paused(store: Store, sample: Any) -> Change:
    """A call that was claimed and then paused."""
    change: Change = sample.claiming("key")
    assert change.claim is not None
    change = replace(change, claim=replace(change.claim, arguments={"amount": 5, "rate": 0.1, "to": "Änn \ud83d"}))
    store.commit(change)
    event = replace(change.event, outcome=Outcome.SUSPENDED)
    store.settle(Settlement(event=event, claimed=True, state=CallState.SUSPENDED))
    return change


def resumed(change: Change) -> Change:
    """The commit that goes on with it."""
    event = replace(change.event, outcome=Outcome.RESUMED)
    return Change(event=event, root_id=change.root_id, claim=change.claim, supersedes=change.event.call_id)


def test_a_paused_call_is_found_with_its_arguments(store: Store, sample: Any) -> None:
    """The entry of a paused call is read by its keys and by its id, with exactly the arguments it was claimed with."""
    change = paused(store, sample)
    assert change.claim is not None
    entry = store.load(sample.query(call_key="key")).entry
    assert entry == store.entry(change.event.call_id) == replace(change.claim, state=CallState.SUSPENDED)
    assert store.entry("another") is None


def test_a_paused_call_goes_on_once(store: Store, sample: Any) -> None:
    """Of two that go on with a paused call the second finds it taken; it can be paused, and go on, again."""
    change = paused(store, sample)
    store.commit(resumed(change))
    with pytest.raises(Conflict) as conflict:
        store.commit(resumed(change))
    assert (conflict.value.what, conflict.value.name) == ("claim", "key")
    event = replace(change.event, outcome=Outcome.SUSPENDED)
    store.settle(Settlement(event=event, claimed=True, state=CallState.SUSPENDED))
    store.commit(resumed(change))
    event = replace(change.event, outcome=Outcome.SUCCEEDED)
    store.settle(Settlement(event=event, claimed=True, state=CallState.DONE, output="paid", keep_ns=10**12))
    entry = store.entry(change.event.call_id)
    assert entry is not None
    assert (entry.state, entry.output) == (CallState.DONE, "paid")
    with pytest.raises(Conflict):
        store.commit(resumed(change))


def test_a_call_that_could_not_go_on_is_paused_still(store: Store, sample: Any) -> None:
    """Giving back a resumption leaves the call paused, not unknown to the ledger: it had begun to run."""
    change = paused(store, sample)
    store.commit(resumed(change))
    store.release(resumed(change))
    entry = store.entry(change.event.call_id)
    assert entry is not None
    assert entry.state is CallState.SUSPENDED
    store.commit(resumed(change))


def test_a_call_is_denied_once_for_each_code(store: Store, sample: Any) -> None:
    """A denial of a keyed call that was denied so before is 0, and counts nothing; without a key each counts."""

    def deny(code: str, call_key: str | None) -> int:
        return store.deny(sample.event(Outcome.DENIED, code=code, fingerprint="f"), sample.root_id, call_key)

    assert [deny("policy_denied", key) for key in ("a", "a", "b", None, "a", None, "b")] == [1, 0, 2, 3, 0, 4, 0]
    assert [deny("approval_rejected", key) for key in ("a", "a")] == [1, 0]
    assert store.load(sample.query()).denials == 5
