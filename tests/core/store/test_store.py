"""What a store promises, whichever it is: one suite over memory, SQLite and PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from guarded_core.approvals.request import Answer, ApprovalRequest, RequestState, Vote
from guarded_core.audit.event import Outcome
from guarded_core.store.base import Change, Conflict, SessionRecord, Settlement, Store, TooManyRequests
from guarded_core.store.ledger import CallState
from guarded_core.tools.spec import ToolRisk

DAY = 24 * 3600 * 1_000_000_000


def refusal(store: Store, change: Change) -> tuple[str, str] | None:
    """What the commit of `change` came into conflict with; None where it was taken."""
    try:
        store.commit(change)
    except Conflict as conflict:
        return (conflict.what, conflict.name)
    return None


def wait_past(store: Store, ns: int) -> None:
    """Wait until the store's clock has passed."""
    while store.now_ns() <= ns:
        pass


def settle(store: Store, change: Change, state: CallState, **fields: Any) -> None:
    """Settle a claimed call."""
    outcomes = {CallState.DONE: Outcome.SUCCEEDED, CallState.UNKNOWN: Outcome.UNKNOWN}
    event = replace(change.event, outcome=outcomes.get(state, Outcome.FAILED))
    store.settle(Settlement(event=event, claimed=True, state=state, **fields))


def test_counters_are_spent(store: Store, sample: Any) -> None:
    """A commit spends one of each counter; a counter that nobody spent from is 0."""
    store.commit(sample.change(counters={"a": 3, "b": 3}))
    store.commit(sample.change(counters={"a": 3}))
    assert store.load(sample.query(counters=("a", "b", "c"))).spent == {"a": 2, "b": 1, "c": 0}


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_counter_has_a_limit(store: Store, sample: Any, limit: int) -> None:
    """As many commits are taken as the limit says; the next is in conflict with the counter."""
    answers = [refusal(store, sample.change(counters={"a": limit})) for _ in range(limit + 2)]
    assert answers == [None] * limit + [("counter", "a")] * 2
    assert store.load(sample.query(counters=("a",))).spent == {"a": limit}


@pytest.mark.parametrize(
    ("first", "second", "limit"),
    [("0.1", "0.2", "0.3"), ("7", "0", "7"), ("1e30", "1e-30", f"1{'0' * 30}.{'0' * 29}1")],
)
def test_sums_are_exact(store: Store, sample: Any, first: str, second: str, limit: str) -> None:
    """Amounts add up as decimals, without rounding: what fits exactly is taken, the smallest more is not."""
    one, two = (sample.change(slots=(sample.slot("w", amount, limit),)) for amount in (first, second))
    assert [refusal(store, one), refusal(store, two)] == [None, None]
    assert store.load(sample.query(windows=sample.windows(one))).used == {"w": Decimal(limit)}
    assert refusal(store, sample.change(slots=(sample.slot("w", "1e-30", limit),))) == ("slot", "rule of w")


def test_two_slots_of_one_window_count_together(store: Store, sample: Any) -> None:
    """Two rules that take from one window in one call cannot both take the last of it."""
    both = sample.change(slots=(sample.slot("w", "6", "10"), sample.slot("w", "5", "10")))
    assert refusal(store, both) == ("slot", "rule of w")
    assert store.load(sample.query(windows=sample.windows(both))).used == {"w": 0}


def test_slots_leave_their_window(store: Store, sample: Any) -> None:
    """What was taken counts until the interval has passed, and not a moment longer."""
    change = sample.change(slots=(sample.slot("w", "10", "10", interval_ns=1_000_000), sample.slot("day", "10", "20")))
    store.commit(change)
    wait_past(store, store.now_ns() + 1_000_000)
    assert store.load(sample.query(windows=sample.windows(change))).used == {"w": 0, "day": 10}
    assert refusal(store, sample.change(slots=change.reservation.slots)) is None
    assert store.load(sample.query(windows=sample.windows(change)[1:])).used == {"day": 20}


def test_windows_are_read_by_their_own_interval(store: Store, sample: Any) -> None:
    """Where a policy makes a window longer, what is still kept of it counts again."""
    store.commit(sample.change(slots=(sample.slot("w", "10", "10", interval_ns=DAY),)))
    short, long = (sample.change(slots=(sample.slot("w", "1", "10", interval_ns=ns),)) for ns in (1, DAY))
    wait_past(store, store.now_ns())
    assert store.load(sample.query(windows=sample.windows(long))).used == {"w": 10}
    assert refusal(store, long) == ("slot", "rule of w")
    assert refusal(store, short) is None


def test_flags_are_raised_on_the_session_tree(store: Store, sample: Any) -> None:
    """A flag that a commit raised is read, and forbids, in that tree only."""
    store.commit(sample.change(raises=frozenset({"ran a", "ran b"})))
    assert store.load(sample.query()).flags == {"ran a", "ran b"}
    assert store.load(sample.query(root_id="another")).flags == frozenset()
    assert refusal(store, sample.change(forbids=frozenset({"ran b", "x"}))) == ("flag", "ran b")
    assert refusal(store, sample.change(forbids=frozenset({"ran b"}), root_id="another")) is None


def test_approval_is_used_once(store: Store, sample: Any) -> None:
    """One commit consumes an approved request, and it is read no more; a second one is in conflict."""
    request = sample.approved(store)
    assert store.load(sample.query()).requests == (request,)
    assert refusal(store, sample.change(requests=(request,))) is None
    assert store.load(sample.query()).requests == ()
    assert refusal(store, sample.change(requests=(request,))) == ("request", request.id)
    assert store.request(request.id) == replace(request, state=RequestState.CONSUMED, version=1)


@pytest.mark.parametrize("fault", ["pending", "expired", "changed", "unknown"])
def test_only_a_live_approval_is_used(store: Store, sample: Any, fault: str) -> None:
    """A request that is not approved, has expired, was changed since it was read or is not there is a conflict."""
    request = sample.request(store, state=RequestState.APPROVED)
    stored = {
        "pending": replace(request, state=RequestState.PENDING),
        "expired": replace(request, expires_ns=request.created_ns),
        "changed": replace(request, version=1),
        "unknown": replace(request, id="another"),
    }[fault]
    store.add_request(stored, max_pending=1)
    good = sample.approved(store)
    used = replace(request, state=stored.state) if fault == "pending" else request
    assert refusal(store, sample.change(requests=(good, used))) == ("request", request.id)
    assert store.request(good.id) == good


def test_claim_is_held_once(store: Store, sample: Any) -> None:
    """The key of a claimed call cannot be claimed by another call; any other key can."""
    first = sample.claiming("key")
    store.commit(first)
    assert refusal(store, sample.claiming("key")) == ("claim", "key")
    assert refusal(store, sample.claiming("other key")) is None
    assert store.load(sample.query(call_key="key")).entry == first.claim
    assert store.load(sample.query(call_key="x")).entry is None


def test_failed_call_is_superseded(store: Store, sample: Any) -> None:
    """A new try takes over the claim of the call it names, once; naming another call is a conflict."""
    failed = sample.claiming("key")
    store.commit(failed)
    settle(store, failed, CallState.NOT_EXECUTED)
    again = sample.claiming("key", supersedes=failed.event.call_id)
    assert refusal(store, sample.claiming("key", supersedes="another")) == ("claim", "key")
    assert refusal(store, again) is None
    assert refusal(store, sample.claiming("key", supersedes=failed.event.call_id)) == ("claim", "key")
    assert store.load(sample.query(call_key="key")).entry == again.claim


@pytest.mark.parametrize("what", ["counter", "slot", "flag", "request", "claim"])
def test_conflict_takes_nothing(store: Store, sample: Any, what: str) -> None:
    """Whatever part of a commit does not fit, none of the others is taken."""
    spent, slot = sample.approved(store), sample.slot("w", "1", "1")
    store.commit(sample.claiming("key", counters={"c": 1}, slots=(slot,), raises=frozenset({"f"}), requests=(spent,)))
    fits = {
        "counters": {"free": 1},
        "slots": (sample.slot("free", "1", "1"),),
        "raises": frozenset({"free"}),
        "requests": (sample.approved(store),),
    }
    bad = {
        "counter": {"counters": {"free": 1, "c": 1}},
        "slot": {"slots": (*fits["slots"], slot)},
        "flag": {"forbids": frozenset({"f"})},
        "request": {"requests": (*fits["requests"], spent)},
        "claim": {},
    }[what]
    conflict = refusal(store, sample.claiming("key" if what == "claim" else "free", **fits | bad))
    assert conflict is not None
    assert conflict[0] == what
    windows = sample.windows(sample.change(**fits))
    snapshot = store.load(sample.query(counters=("free",), windows=windows, call_key="free"))
    assert (snapshot.spent, snapshot.used, snapshot.flags) == ({"free": 0}, {"free": 0}, {"f"})
    assert (snapshot.requests, snapshot.entry) == (fits["requests"], None)
    assert refusal(store, sample.claiming("free", **fits)) is None


def test_release_gives_everything_back(store: Store, sample: Any) -> None:
    """A call that never started leaves budgets, windows, flags, approvals and claims as they were."""
    request = sample.approved(store)
    parts = {
        "counters": {"c": 2},
        "slots": (sample.slot("w", "1.5", "3"),),
        "raises": frozenset({"both", "second"}),
    }
    store.commit(sample.change(**parts | {"raises": frozenset({"both"})}))
    change = sample.claiming("key", requests=(request,), **parts)
    store.commit(change)
    store.release(change)
    snapshot = store.load(sample.query(counters=("c",), windows=sample.windows(change), call_key="key"))
    assert (snapshot.spent, snapshot.used, snapshot.flags) == ({"c": 1}, {"w": Decimal("1.5")}, {"both"})
    assert (snapshot.requests, snapshot.entry) == ((replace(request, version=2),), None)
    again = sample.claiming("key", requests=snapshot.requests, **parts)
    assert refusal(store, again) is None
    assert refusal(store, sample.change(counters={"c": 2})) == ("counter", "c")


@pytest.mark.parametrize(
    "output", [None, {"content": "paid", "n": [1, 2.5, True, None]}, "ü\u0000\U0001f600", 2**70, [], ""]
)
def test_finished_call_keeps_its_output(store: Store, sample: Any, output: Any) -> None:
    """The output of a settled call is read with its entry, exactly, for as long as it is kept."""
    change = sample.claiming("key")
    store.commit(change)
    settle(store, change, CallState.DONE, output=output, keep_ns=DAY)
    snapshot = store.load(sample.query(call_key="key"))
    assert snapshot.entry is not None
    assert (snapshot.entry.state, snapshot.entry.output) == (CallState.DONE, output)
    assert snapshot.now_ns < snapshot.entry.expires_ns <= snapshot.now_ns + DAY


@pytest.mark.parametrize("keep_ns", [0, 1])
def test_output_is_read_no_more_once_it_expired(store: Store, sample: Any, keep_ns: int) -> None:
    """An output that is kept no longer is not read; that the call is done still is."""
    change = sample.claiming("key")
    store.commit(change)
    settle(store, change, CallState.DONE, output="paid", keep_ns=keep_ns)
    wait_past(store, store.now_ns() + keep_ns)
    entry = store.load(sample.query(call_key="key")).entry
    assert entry is not None
    assert (entry.state, entry.output) == (CallState.DONE, None)


def test_calls_that_may_have_had_their_effect_are_doubtful(store: Store, sample: Any) -> None:
    """Calls that are unknown or raised are read by digest, for the same caller and tool, until somebody knows."""
    one, two = sample.claiming("a", digest="one"), sample.claiming("c", digest="two")
    for change, state in ((one, CallState.UNKNOWN), (two, CallState.RAISED)):
        store.commit(change)
        assert store.load(sample.query()).doubtful == ({"one": CallState.UNKNOWN} if change is two else {})
        settle(store, change, state)
    assert store.load(sample.query()).doubtful == {"one": CallState.UNKNOWN, "two": CallState.RAISED}
    assert store.load(sample.query(tool="search")).doubtful == {}
    assert store.load(sample.query(principal="another")).doubtful == {}
    settle(store, one, CallState.NOT_EXECUTED)
    assert store.load(sample.query()).doubtful == {"two": CallState.RAISED}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_equal_calls_the_less_known_counts(store: Store, sample: Any, order: tuple[int, int]) -> None:
    """Where one of two equal calls is unknown and the other raised, the digest is that of an unknown outcome."""
    states = (CallState.UNKNOWN, CallState.RAISED)
    for n in order:
        change = sample.claiming(f"key {n}", digest="one")
        store.commit(change)
        settle(store, change, states[n])
    assert store.load(sample.query()).doubtful == {"one": CallState.UNKNOWN}


@pytest.mark.parametrize("state", [CallState.RAISED, CallState.UNUSABLE])
def test_an_error_is_kept_as_a_result_is(store: Store, sample: Any, state: CallState) -> None:
    """What a call that failed gave back is read with its entry, and it cannot be claimed again."""
    change = sample.claiming("key")
    store.commit(change)
    settle(store, change, state, output={"code": "execution_failed"}, keep_ns=DAY)
    entry = store.load(sample.query(call_key="key")).entry
    assert entry is not None
    assert (entry.state, entry.output) == (state, {"code": "execution_failed"})
    assert refusal(store, sample.claiming("key")) == ("claim", "key")


def test_settling_a_call_without_a_claim(store: Store, sample: Any) -> None:
    """A call that holds no claim is settled without complaint, also where it is said to hold one."""
    for claimed in (False, True):
        change = sample.change()
        store.commit(change)
        store.settle(Settlement(event=sample.end(change), claimed=claimed, state=CallState.DONE, output=1, keep_ns=1))


def pause(change: Change) -> Settlement:
    """How a call that ran without a claim is paused."""
    event = replace(change.event, outcome=Outcome.SUSPENDED)
    return Settlement(event=event, claimed=False, state=CallState.SUSPENDED, claim=change.claim)


def test_a_call_that_is_paused_is_claimed_then(store: Store, sample: Any) -> None:
    """A call that ran without a claim is found by its key once it is paused, and goes on once."""
    change = sample.claiming("key", digest="whole")
    store.commit(replace(change, claim=None))
    assert store.load(sample.query(call_key="key")).entry is None
    store.settle(pause(change))
    assert store.load(sample.query(call_key="key")).entry == replace(change.claim, state=CallState.SUSPENDED)
    event = replace(change.event, outcome=Outcome.RESUMED)
    resumed = replace(change, event=event, supersedes=change.event.call_id)
    assert refusal(store, resumed) is None
    assert refusal(store, resumed) == ("claim", "key")
    settle(store, change, CallState.DONE, output="found", keep_ns=DAY)
    entry = store.load(sample.query(call_key="key")).entry
    assert entry is not None
    assert (entry.state, entry.output) == (CallState.DONE, "found")


def test_of_two_paused_calls_with_one_key_the_first_is_claimed(store: Store, sample: Any) -> None:
    """Where another call holds the key, a pause is a conflict, and nothing of it is kept or recorded."""
    first, second = sample.claiming("key"), sample.claiming("key")
    for change in (first, second):
        store.commit(replace(change, claim=None))
    store.settle(pause(first))
    with pytest.raises(Conflict) as conflict:
        store.settle(pause(second))
    assert conflict.value.what == "claim"
    assert store.entry(second.event.call_id) is None
    assert store.load(sample.query(call_key="key")).entry == replace(first.claim, state=CallState.SUSPENDED)
    assert refusal(store, sample.claiming("key")) == ("claim", "key")
    if store.keeps_trail:
        recorded = [(event.call_id, event.outcome) for event in store.trail()]  # type: ignore[attr-defined]
        assert recorded.count((first.event.call_id, Outcome.SUSPENDED)) == 1
        assert recorded.count((second.event.call_id, Outcome.SUSPENDED)) == 0
        assert store.trail().verify().records == 3  # type: ignore[attr-defined]
    store.settle(replace(pause(second), claim=None, event=sample.end(second, Outcome.UNKNOWN)))


def test_equal_denials_are_counted(store: Store, sample: Any) -> None:
    """Denials count by tool and code in their session tree; all names that are no tool's count as one."""
    denied = {"outcome": Outcome.DENIED, "code": "policy_denied", "fingerprint": "f"}
    made_up = {"outcome": Outcome.DENIED, "code": "unauthorized"}

    def deny(root_id: str = sample.root_id, **fields: Any) -> int:
        return store.deny(sample.event(**fields), root_id)

    assert [deny(**denied) for _ in range(10)] == list(range(1, 11))
    assert deny(**denied | {"tool": "search"}) == 1
    assert deny(**denied | {"code": "invalid_payload"}) == 1
    assert [deny(**made_up | {"tool": f"tool-{n}"}) for n in range(3)] == [1, 2, 3]
    assert deny("another", **denied) == 1
    assert store.load(sample.query()).denials == 15
    assert store.load(sample.query(root_id="another")).denials == 1
    assert store.load(sample.query(root_id="nobody's")).denials == 0


def test_pending_requests_are_bounded(store: Store, sample: Any) -> None:
    """A session has at most so many live pending requests; expired, decided and other sessions' ones do not count."""
    store.add_request(sample.request(store, expires_ns=1), max_pending=2)
    store.add_request(sample.request(store, session_id="another"), max_pending=2)
    sample.approved(store)
    first = sample.request(store)
    store.add_request(first, max_pending=2)
    store.add_request(sample.request(store), max_pending=2)
    with pytest.raises(TooManyRequests):
        store.add_request(sample.request(store), max_pending=2)
    sample.approved(store)
    assert store.replace_request(first, first.moved(RequestState.REVOKED)) is True
    store.add_request(sample.request(store), max_pending=2)


def test_requests_are_kept_whole(store: Store, sample: Any) -> None:
    """Every field of a request comes back as it was, its arguments and votes exactly."""
    arguments = {"n": [2**64 - 1, -(2**63), 1.5e-300, 10.0, True, None], "t": "\u0000ü\U0001f600\u202e", "": {"a": {}}}
    request = sample.request(
        store,
        fingerprint="f",
        policy="p",
        call_key="k",
        on_behalf_of=("root", "agent"),
        risk=ToolRisk.FINANCIAL,
        reasons=("risk:financial", "big"),
        arguments=arguments,
        required=3,
        self_approval=True,
        votes=(Vote("lee", True, "ticket ü", 5), Vote("kim", False, "", 6)),
        state=RequestState.REJECTED,
        version=7,
    )
    store.add_request(request, max_pending=1)
    assert store.request(request.id) == request
    found = store.load(sample.query()).requests[0]
    assert found == request
    assert [type(n) for n in found.arguments["n"]] == [int, int, float, float, bool, type(None)]
    assert store.request("another") is None


def test_open_requests_are_read_by_session_and_tool(store: Store, sample: Any) -> None:
    """A snapshot has the session's open requests for the tool, oldest first; consumed and revoked ones are gone."""
    states = [RequestState.REJECTED, RequestState.PENDING, RequestState.APPROVED]
    wanted = [sample.request(store, state=state) for state in states]
    other = [
        sample.request(store, tool="search"),
        sample.request(store, session_id="another"),
        sample.request(store, state=RequestState.CONSUMED),
        sample.request(store, state=RequestState.REVOKED),
    ]
    for request in (*other[:2], *wanted, *other[2:]):
        store.add_request(request, max_pending=9)
    assert store.load(sample.query()).requests == tuple(wanted)
    assert store.requests() == [*other[:2], *wanted, *other[2:]]
    assert store.requests(session_id="another") == [other[1]]
    assert store.requests(state=RequestState.PENDING) == [other[0], other[1], wanted[1]]
    assert store.requests(session_id=sample.session_id, state=RequestState.APPROVED) == [wanted[2]]


def test_requests_are_replaced_by_version(store: Store, sample: Any) -> None:
    """A decision is kept where the request is still the one that was read; a stale one changes nothing."""
    request: ApprovalRequest = sample.request(store)
    store.add_request(request, max_pending=1)
    voted = request.voted(Answer(by="lee", approve=True, reason="fine"), now_ns=store.now_ns())
    assert store.replace_request(request, voted) is True
    assert store.replace_request(request, request.moved(RequestState.REVOKED)) is False
    assert store.replace_request(sample.request(store), voted) is False
    assert store.request(request.id) == voted
    assert store.load(sample.query()).requests == (voted,)


def test_a_request_that_replaces_another(store: Store, sample: Any) -> None:
    """A request ends and the one in its place is kept with it; where the first has changed, neither is."""
    request: ApprovalRequest = sample.request(store, arguments={"amount": 9})
    store.add_request(request, max_pending=1)
    answer = Answer(by="lee", approve=True, arguments={"amount": 5})
    first, second = (request.edited(answer, now_ns=store.now_ns()) for _ in range(2))
    assert first is not None
    assert second is not None
    assert store.replace_request(request, *first) is True
    assert store.replace_request(request, *second) is False
    ended, added = first
    assert [store.request(known.id) for known in (ended, added, second[1])] == [ended, added, None]
    assert store.requests() == [ended, added]
    assert store.load(sample.query()).requests == (added,)
    assert (ended.replaced_by, added.replaces) == (added.id, ended.id)


def test_session_is_opened_once(store: Store) -> None:
    """The first record of a session is kept, and returned to whoever opens it again."""
    first = SessionRecord(id="user-17#s", principal="user-17", tools=frozenset({"refund", "search"}), max_calls=5)
    assert store.open_session(first) == first
    wider = replace(first, tools=frozenset({"deploy"}), max_calls=50)
    assert store.open_session(wider) == first
    other = replace(wider, id="user-17#t", tools=frozenset())
    assert store.open_session(other) == other


def race(store: Store, changes: list[Change]) -> list[tuple[str, str] | None]:
    """What became of changes that were all committed at the same time."""
    barrier = threading.Barrier(len(changes))

    def commit(change: Change) -> tuple[str, str] | None:
        barrier.wait()
        return refusal(store, change)

    with ThreadPoolExecutor(len(changes)) as threads:
        return list(threads.map(commit, changes))


RACES: dict[str, tuple[int, Callable[[Any, Store], list[Change]]]] = {
    "counter": (3, lambda sample, store: [sample.change(counters={"c": 3, "d": 9}) for _ in range(8)]),
    "counters in any order": (
        4,
        lambda sample, store: [
            sample.change(counters=dict([("a", 4), ("b", 9), ("c", 9)][:: 1 if n % 2 else -1])) for n in range(8)
        ],
    ),
    "slot": (2, lambda sample, store: [sample.change(slots=(sample.slot("w", "4", "10"),)) for _ in range(8)]),
    "flag": (
        1,
        lambda sample, store: [
            sample.change(raises=frozenset({"a"} if n % 2 else {"b"}), forbids=frozenset({"a", "b"})) for n in range(8)
        ],
    ),
    "request": (
        1,
        lambda sample, store: [sample.change(requests=(request,)) for request in [sample.approved(store)] * 8],
    ),
    "claim": (1, lambda sample, store: [sample.claiming("key") for n in range(8)]),
    "two claims": (2, lambda sample, store: [sample.claiming(f"key {n % 2}") for n in range(8)]),
}


@pytest.mark.parametrize(("taken", "changes"), RACES.values(), ids=RACES)
def test_threads_never_take_too_much(
    store: Store, sample: Any, taken: int, changes: Callable[[Any, Store], list[Change]]
) -> None:
    """However many commit at once, as many get through as there is room for, and all others are told why not."""
    answers = race(store, changes(sample, store))
    assert answers.count(None) == taken
    assert len({answer[0] for answer in answers if answer}) == 1


def test_snapshot_is_of_one_moment(store: Store, sample: Any) -> None:
    """Two counters that are always spent together never differ in a snapshot."""
    done = threading.Event()

    def spend() -> None:
        for _ in range(60):
            store.commit(sample.change(counters={"a": 1000, "b": 1000}))
        done.set()

    with ThreadPoolExecutor(1) as threads:
        spending = threads.submit(spend)
        while not done.is_set():
            spent = store.load(sample.query(counters=("a", "b"))).spent
            assert spent["a"] == spent["b"]
        spending.result()
    assert store.load(sample.query(counters=("a", "b"))).spent == {"a": 60, "b": 60}


def test_pending_bound_holds_for_threads(store: Store, sample: Any) -> None:
    """However many ask at once, no more requests are pending than may be."""
    requests = [sample.request(store) for _ in range(8)]

    def add(request: ApprovalRequest) -> bool:
        try:
            store.add_request(request, max_pending=3)
        except TooManyRequests:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(add, requests)) == 3
    assert len(store.requests(session_id=sample.session_id)) == 3
