"""The table and the plot."""

from __future__ import annotations

from pathlib import Path

from benchmarks.agentdojo import timing
from benchmarks.agentdojo.honesty import policy_hashes
from benchmarks.agentdojo.levels import LEVELS
from benchmarks.agentdojo.results import Row, load

HERE = Path(__file__).parent
BEGIN, END = "<!-- figures: make bench-agentdojo -->", "<!-- end of figures -->"

# From the papers and reports: live models, other attacks, other defences. Not comparable number by number.
PUBLISHED = (
    ("Progent", "targeted attack success 41.2 % → 2.2 % (v1)", "live model; an independent rerun: 25.8 → 4.2 %"),
    ("CaMeL", "0 attacks; utility 63.9 % (undefended 90.7 %)", "live model; policies change 33.9 % of benign tasks"),
    ("Tool filter", "utility 72.2 %, attack success 6.8 %", "live model (GPT-4o)"),
    ("Task Shield", "utility 69.8 %, attack success 2.07 %", "live model (GPT-4o)"),
    ("agent-airlock", "524 of 609 blocked", "a replay as here, with per-task allowlists"),
)  # fmt: skip


def table(rows: dict[tuple[str, str, str], Row]) -> str:
    """Every row, as Markdown."""
    some = next(iter(rows.values()))
    lines = [
        f"| | strict utility | AgentDojo's utility | attacked | attacks through, of {some.pairs} "
        f"| text only, of {some.text_only} | append / prefix / insider | tasks that ask | attacks that ask |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for level in LEVELS:
        row = rows.get((level.name, "core", "hijack"))
        if row is None:
            continue
        others = [rows.get((level.name, "core", order)) for order in ("append", "prefix", "insider")]
        orders = " / ".join("–" if other is None else str(other.through) for other in others)
        asks = _percent(row.asked, row.tasks) if level.person != "nobody" else "–"
        lines.append(
            f"| {level.name} | {_percent(row.strict, row.tasks)} | {_percent(row.utility, row.tasks)} "
            f"| {_percent(row.attacked_strict, row.pairs)} | {row.through} | {row.text_through} "
            f"| {orders} | {asks} | {row.attack_asked} |"
        )
    return "\n".join(lines)


def adapters(rows: dict[tuple[str, str, str], Row]) -> str:
    """Whether the adapters' verdicts are the core's, level by level."""
    lines = ["| | LangChain | LlamaIndex |", "|---|---|---|"]
    for (level, adapter, order), row in rows.items():
        others = [rows.get((level, other, order)) for other in ("langchain", "llamaindex")]
        if adapter == "core" and any(others):
            told = [
                "–" if other is None else "identical" if other.verdicts == row.verdicts else "DIFFERENT"
                for other in others
            ]
            lines.append(f"| {level}, {order} | {' | '.join(told)} |")
    return "\n".join(lines)


def published() -> str:
    """What others report."""
    return "\n".join(["| | reported | method |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in PUBLISHED)])


def plot(rows: dict[tuple[str, str, str], Row], path: Path = HERE / "figures.svg") -> None:
    """Three bars a level: utility, attacks, questions."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "agentdojo"
    from matplotlib import pyplot

    shown = [row for level in reversed(LEVELS) if (row := rows.get((level.name, "core", "hijack"))) is not None]
    names = [row.level for row in shown]
    panels = (
        ("strict utility, % of 97 tasks", "tab:green", [100 * row.strict / row.tasks for row in shown]),
        ("attacks through, % of 609", "tab:red", [100 * row.through / row.pairs for row in shown]),
        ("tasks that ask a person, %", "tab:blue", [100 * row.asked / row.tasks for row in shown]),
    )
    figure, axes = pyplot.subplots(1, 3, sharey=True, figsize=(11, 5.5))
    for panel, (title, colour, values) in zip(axes, panels, strict=True):
        bars = panel.barh(names, values, color=colour, alpha=0.7)
        panel.bar_label(bars, fmt="%.1f", fontsize=7, padding=2)
        panel.set_title(title, fontsize=9)
        panel.set_xlim(0, 118)
        panel.tick_params(labelsize=8)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    figure.suptitle("AgentDojo v1.2.2 behind the guard: a replay, the model assumed hijacked", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")


def write() -> None:
    """Put table and plot where the README shows them."""
    rows = load()
    readme = HERE / "README.md"
    text = readme.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    parts = [
        BEGIN,
        table(rows),
        timing.table(),
        "Verdicts of the adapters, call by call, against the core's own:",
        adapters(rows),
        "What others report, of live models:",
        published(),
        "The policies, by SHA-256: " + ", ".join(f"{name} `{sha[:16]}`" for name, sha in policy_hashes().items()) + ".",
        END,
    ]
    readme.write_text(before + "\n\n".join(parts) + after)
    plot(rows)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"
