"""What a guard costs a call: by entry, payload, trail and rules; and where the time goes.

Run from the repository's folder: ``python -m benchmarks overhead``.
"""

from __future__ import annotations

import asyncio
import copy
import cProfile
import functools
import io
import json
import os
import pstats
import statistics
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import jsonschema
from pydantic import BaseModel, ConfigDict

from benchmarks.report import Goal, Plot, Section
from benchmarks.rules import other_rules
from benchmarks.sampling import Ratio, asample, ratio, sample
from benchmarks.tools import SIZES, Payment, apay, arguments, house, langchain, llamaindex, passing_rules, pay, policy
from guarded_core import Guard, InMemoryToolAuditTrail
from guarded_core.audit.durable import DurableToolAuditTrail
from guarded_core.audit.event import Outcome
from guarded_core.ground.payload import freeze, measure
from guarded_core.pipeline.call import Call
from guarded_core.pipeline.record import Found, open_record
from guarded_core.rules.case import Action, Case, Rule
from guarded_core.rules.kinds.tracing import RequireOrigin
from guarded_core.store.base import Change
from guarded_core.tools.port import FunctionPort
from guarded_langchain import guard_tool as guard_langchain
from guarded_llamaindex import guard_tool as guard_llamaindex

Calls: TypeAlias = dict[str, Callable[[], Any]]
POSTGRES = os.environ.get("GUARDED_TEST_POSTGRES")
KEY = b"benchmark-secret-of-32-bytes-long"


PAIRS = {
    "LangChain invoke, pydantic": 1.15,
    "LangChain invoke, dict schema": 1.20,
    "LangChain ainvoke, pydantic": None,
    "LangChain ainvoke, dict schema": None,
    "LlamaIndex call": 1.5,
    "LlamaIndex acall": None,
}


def entries(guard: Guard, given: dict[str, Any]) -> tuple[Calls, Calls]:
    """Each entry, bare and guarded, and the plain function: the sync ones, and the async ones."""
    context = guard.session("ann", tools=["pay"], max_calls=10**9)
    calls: tuple[Calls, Calls] = {}, {}
    for kind, schema in (("pydantic", Payment), ("dict schema", Payment.model_json_schema())):
        bare = langchain(schema)
        for side, tool in (("bare", bare), ("guarded", guard_langchain(bare, guard, context=context))):
            calls[0][f"LangChain invoke, {kind}, {side}"] = functools.partial(tool.invoke, given)
            calls[1][f"LangChain ainvoke, {kind}, {side}"] = functools.partial(tool.ainvoke, given)
    plain = llamaindex()
    for side, wrapped in (("bare", plain), ("guarded", guard_llamaindex(plain, guard, context=context))):
        calls[0][f"LlamaIndex call, {side}"] = functools.partial(wrapped.call, **given)
        calls[1][f"LlamaIndex acall, {side}"] = functools.partial(wrapped.acall, **given)
    calls[0]["guard.call"] = lambda: guard.call("pay", given, context=context)
    calls[1]["guard.acall"] = lambda: guard.acall("pay", given, context=context)
    for call in calls[0].values():
        _passes(call())
    return calls


def _passes(output: Any) -> None:
    if getattr(output, "is_error", False) or "paid" not in str(output):
        raise RuntimeError("the call is meant to pass")


def by_entry(rounds: int) -> Section:
    """All entries, 200 B, ten rules, trail in memory."""
    sync, awaited = entries(house(), arguments("200 B"))
    times = sample(sync, rounds) | asyncio.run(asample(awaited, rounds))
    rows, goals = [], []
    bars: dict[str, dict[str, float]] = {"bare": {}, "guarded": {}}
    for name, wanted in PAIRS.items():
        bare, guarded = times[f"{name}, bare"], times[f"{name}, guarded"]
        found = ratio(guarded, bare)
        rows.append([name, _us(bare), _us(guarded), str(found)])
        bars["bare"][name], bars["guarded"][name] = statistics.median(bare), statistics.median(guarded)
        if wanted is not None:
            goals.append(Goal(what=name, wanted=f"≤ {wanted} × bare", found=f"{found} ×", met=found.value <= wanted))
    for name in ("guard.call", "guard.acall"):
        rows.append([name, "", _us(times[name]), ""])
        bars["guarded"][name] = statistics.median(times[name])
    return Section(
        title="Overhead by entry",
        text="A payment of five arguments, 200 B of JSON, ten rules that look at it, store and trail in memory. "
        "Two events are recorded for each call. The plain function behind `guard.call` takes next to nothing; "
        "`guard.acall` runs it in a worker thread.",
        columns=("Entry", "bare", "guarded", "ratio"),
        rows=rows,
        goals=goals,
        plot=Plot(name="overhead", title="A call of 200 B, bare and guarded", unit="µs, median", bars=bars),
    )


def by_payload(rounds: int) -> Section:
    """The sync entries at three sizes."""
    rows = []
    bars: dict[str, dict[str, float]] = {size: {} for size in SIZES}
    guard = house()
    for size in SIZES:
        calls, _ = entries(guard, arguments(size))
        times = sample(calls, max(50, rounds // (1 + SIZES[size] // 10)))
        row = [size]
        for name in PAIRS:
            if f"{name}, bare" in times:
                found = ratio(times[f"{name}, guarded"], times[f"{name}, bare"])
                row.append(f"{_us(times[f'{name}, guarded'])}, {found.value:.2f} ×")
                bars[size][name] = found.value
        rows.append([*row, _us(times["guard.call"])])
    names = [name for name in PAIRS if "ainvoke" not in name and "acall" not in name]
    return Section(
        title="Overhead by payload",
        text="Guarded, and its ratio to bare. The rows of the larger payloads are nested objects, lists, texts and "
        "numbers; they are bounded, copied, canonicalised and digested besides what the framework does.",
        columns=("Payload", *names, "guard.call"),
        rows=rows,
        plot=Plot(name="payload", title="Guarded over bare, by payload", unit="×", bars=bars, line=1.0),
    )


def by_rules(rounds: int) -> Section:
    """The plain call with no rules, ten, a thousand, and one that traces values."""
    own = passing_rules("pay")
    user = RequireOrigin(tool="pay", param="to")
    sets: dict[str, list[Rule]] = {
        "none": [],
        "10, all of them the tool's": own,
        "1,000, ten of them the tool's": [*own, *other_rules(990)],
        "1,000, all of them the tool's": passing_rules("pay", 1_000),
        "10, and where the recipient came from": [*own, user],
    }
    given, calls = arguments("200 B"), {}
    for name, rules in sets.items():
        guard = house(policy=policy(rules))
        context = guard.session("ann", tools=["pay"], max_calls=10**9, request=f"Pay {given['to']} 12.50 EUR.")
        calls[name] = functools.partial(guard.call, "pay", given, context=context)
        _passes(calls[name]())
    times = sample(calls, rounds)
    rows = [[name, _us(times[name]), str(ratio(times[name], times["none"]))] for name in sets]
    text = "`guard.call`, 200 B, trail in memory. The last row traces values: what a rule about their origin needs."
    return Section(title="Overhead by rules", text=text, columns=("Rules", "a call", "ratio to none"), rows=rows)


def by_trail(folder: Path, rounds: int) -> Section:
    """The plain call with each place for its evidence; the durable one against what its disk takes."""
    fd = os.open(folder / "raw", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    guards = {
        "in memory": house(),
        "durable file": house(audit=DurableToolAuditTrail.open(folder / "audit.log", auto_rotate=True)),
        "durable file, keyed": house(audit=folder / "keyed.log", keys=KEY),
        "SQLite": house(store=f"sqlite:///{folder}/guard.db", audit=None),
    }
    if POSTGRES:
        guards["PostgreSQL"] = house(store=POSTGRES, audit=None)
    given = arguments("200 B")
    calls: Calls = {}
    for name, guard in guards.items():
        context = guard.session("ann", tools=["pay"], max_calls=10**9)
        calls[name] = functools.partial(guard.call, "pay", given, context=context)
    memory = calls["in memory"]

    def two_syncs() -> None:
        for _ in range(2):
            os.write(fd, b"x" * 400)
            os.fdatasync(fd)

    def two_syncs_and_call() -> None:
        two_syncs()
        memory()

    calls["two raw appends with fdatasync"] = two_syncs
    calls["these and a call in memory"] = two_syncs_and_call
    times = sample(calls, rounds)
    durable = ratio(times["durable file"], times["these and a call in memory"])
    rows = [[name, _us(found)] for name, found in times.items()]
    if not POSTGRES:
        rows.append(["PostgreSQL", "skipped: GUARDED_TEST_POSTGRES names no server"])
    shared_trail = Guard(policy(), audit=guards["durable file"].audit)
    shared_trail.tool(name="pay")(apay)  # async, so that no thread is in the way
    single, many = _throughput(shared_trail, 1, rounds), _throughput(shared_trail, 64, 4 * rounds)
    rows += [["durable, one asyncio caller", f"{single:,.0f} calls/s"], ["durable, 64", f"{many:,.0f} calls/s"]]
    for guard in guards.values():
        guard.close()
    os.close(fd)
    wanted = Goal(
        what="a durable call, against its two syncs and the call",
        wanted="≤ 1.3 ×",
        found=f"{durable} ×",
        met=durable.value <= 1.3,
    )
    shared = Goal(
        what="64 asyncio callers, against one", wanted="≥ 4 ×", found=f"{many / single:.1f} ×", met=many >= 4 * single
    )
    return Section(
        title="Overhead by trail",
        text="`guard.call`, 200 B, ten rules. A durable call syncs twice: before the tool runs, and after it.",
        columns=("Trail", "a call"),
        rows=rows,
        goals=[wanted, shared],
        plot=Plot(
            name="trail",
            title="A call of 200 B, by where its evidence goes",
            unit="µs, median",
            bars={"": {name: statistics.median(found) for name, found in times.items()}},
            logarithmic=True,
        ),
    )


def _throughput(guard: Guard, callers: int, calls: int) -> float:
    """Calls a second of so many tasks that share the trail."""
    given, each = arguments("200 B"), max(5, calls // callers)

    async def caller() -> None:
        for _ in range(each):
            await guard.acall("pay", given)

    async def all_callers() -> float:
        start = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(callers)))
        return callers * each / (time.perf_counter() - start)

    with guard.session("ann", tools=["pay"], max_calls=10**9):
        return statistics.median(asyncio.run(all_callers()) for _ in range(3))


class _Record(BaseModel):
    """What a pipeline of pydantic records would write; taken whole."""

    model_config = ConfigDict(extra="allow")
    tool: str
    arguments: dict[str, Any]
    decision: str


def against_naive(rounds: int) -> Section:
    """50 KB through the guard, and through what is put together at first: deepcopy, jsonschema, json, pydantic."""
    given = arguments("50 KB")
    guard = house()
    context = guard.session("ann", tools=["pay"], max_calls=10**9)
    schema = Payment.model_json_schema()
    validator = jsonschema.Draft202012Validator(schema)

    def naive() -> str:
        own = copy.deepcopy(given)
        validator.validate(own)
        written = json.dumps(own, sort_keys=True)
        _Record(tool="pay", arguments=own, decision="allowed").model_dump_json()
        pay(**own)
        _Record(tool="pay", arguments=own, decision="succeeded").model_dump_json()
        return written

    times = sample(
        {"guard.call": lambda: guard.call("pay", given, context=context), "naive": naive}, max(20, rounds // 20)
    )
    found: Ratio = ratio(times["naive"], times["guard.call"])
    milliseconds = statistics.median(times["guard.call"]) / 1000
    goals = [
        Goal(what="a call of 50 KB", wanted="≤ 1.5 ms", found=f"{milliseconds:.2f} ms", met=milliseconds <= 1.5),
        Goal(
            what="a call of 50 KB, against the naive pipeline",
            wanted="≥ 10 × faster",
            found=f"{found} ×",
            met=found.value >= 10,
        ),
    ]
    return Section(
        title="A large payload",
        text="50 KB of nested rows through `guard.call`, and through deepcopy, a cached jsonschema validator, "
        "json.dumps and two pydantic records.",
        columns=("Pipeline", "a call"),
        rows=[[name, _us(found)] for name, found in times.items()],
        goals=goals,
    )


def profile(calls: int) -> list[Section]:
    """Where a guarded call's time goes, own time by function."""
    guard = house()
    sync, _ = entries(guard, arguments("200 B"))
    found = []
    for name in ("LangChain invoke, dict schema", "LlamaIndex call"):
        profiler = cProfile.Profile()
        call = sync[f"{name}, guarded"]
        profiler.enable()
        for _ in range(calls):
            call()
        profiler.disable()
        stats = pstats.Stats(profiler, stream=io.StringIO())
        total = stats.total_tt  # type: ignore[attr-defined]
        shares: dict[str, float] = {}
        for (file, _, function), (_, _, own, _, _) in stats.stats.items():  # type: ignore[attr-defined]
            shares[_room(file, function)] = shares.get(_room(file, function), 0) + own / total
        rows = [[room, f"{share:.0%}"] for room, share in sorted(shares.items(), key=lambda item: -item[1])[:14]]
        text = "The profiler weighs Python functions more than C's, so these are shares, not times."
        found.append(Section(title=f"Profile of {name}", text=text, columns=("Where", "own time"), rows=rows))
    return found


def stages(calls: int) -> Section:
    """What the parts of a guarded call take, each in a loop of its own: caches are warm, nothing is in the way."""
    given, guard = arguments("200 B"), house()
    context = guard.session("ann", tools=["pay"], max_calls=10**9)
    spec, engine = guard.spec("pay"), guard.policy.engine
    assert spec is not None
    payload = freeze(given)
    case = Case(action=Action.tool_call("pay", payload.value), scope=context.scope)
    query = context.query("pay")
    call = Call(tool="pay", port=FunctionPort(spec, pay), arguments=given, context=context)
    record, found = open_record(call, guard.authority), Found(call_id="call-1", policy=guard.policy, spec=spec)
    authorized = record.event(Outcome.AUTHORIZED, found)
    change = Change(event=authorized, root_id=context.session_id, counters=context.counters("pay", None))
    trail = InMemoryToolAuditTrail(1024)
    parts: Calls = {
        "bounded copy, canonical bytes, digest": lambda: freeze(given),
        "the tool's own copy": payload.copy,
        "closed schema": lambda: spec.validator().check(payload.value),
        "pydantic: parse, and dump to JSON": lambda: Payment.model_validate(given).model_dump(mode="json"),
        "ten rules": lambda: engine.judge(case),
        "store: read": lambda: guard.store.load(query),
        "store: commit": lambda: guard.store.commit(change),
        "two events, appended": lambda: [trail.append(record.event(Outcome.AUTHORIZED, found)) for _ in range(2)],
        "output bound": lambda: measure("paid", 4096),
        "guard.call, all of it": lambda: guard.call("pay", given, context=context),
        "a bare LlamaIndex call": functools.partial(llamaindex().call, **given),
        "a bare LangChain invoke, dict schema": functools.partial(langchain(Payment.model_json_schema()).invoke, given),
    }
    rows = []
    for name, part in parts.items():
        best = min(timeit.repeat(part, number=calls // 100, repeat=100)) / (calls // 100)
        rows.append([name, f"{best * 1e6:.1f} µs"])
    return Section(
        title="Where the time goes",
        text=_WHERE,
        columns=("Part of a call of 200 B", "in a hot loop"),
        rows=rows,
    )


_WHERE = """The best of a hundred loops. What is left of `guard.call` beside its parts is glue: about eighty Python
function calls, the steps of the flow among them. Between other calls, as in the tables above, a call takes about
twice as long as in a loop of its own, since neither code nor data are in the processor's caches any more.

- **LlamaIndex call ≤ 1.5 ×**: the bare call validates nothing and is shorter than the guard's own parts together.
  To fit, all of them would have to take 10 µs in a loop; the copy, digest and two events alone take about that.
- **≤ 3 × the thinnest peer**: it makes one dictionary look-up, one predicate call and one record; it copies, bounds,
  validates and digests nothing, and counts without a lock.
- **A large payload**: the walk that bounds and copies every node before anything is serialised is Python, at about
  0.1 µs a node and key; a shared list can stand for gigabytes, so it cannot be left to the serialiser. A keyword rule
  reads every text once more. deepcopy and jsonschema visit each node too, only several times as slowly."""


def _room(file: str, function: str) -> str:
    """Whose code it is: our module, or whose package."""
    path = Path(file)
    if "site-packages" in path.parts:
        return path.parts[path.parts.index("site-packages") + 1]
    for package in ("guarded_core", "guarded_langchain", "guarded_llamaindex"):
        if package in path.parts:
            return ".".join(path.with_suffix("").parts[path.parts.index(package) :])
    return "built-in functions" if file == "~" else "standard library"


def run(quick: bool = False) -> list[Section]:
    """Measure everything."""
    rounds = 150 if quick else 2_000
    with tempfile.TemporaryDirectory(dir=".", prefix=".overhead-") as name:
        folder = Path(name)
        trail = by_trail(folder, 100 if quick else 1_000)
    return [
        by_entry(rounds),
        by_payload(rounds // 2),
        by_rules(rounds // 2),
        trail,
        against_naive(rounds),
        stages(500 if quick else 10_000),
        *profile(200 if quick else 3_000),
    ]


def _us(times: list[float]) -> str:
    return f"{statistics.median(times):,.1f} µs"
