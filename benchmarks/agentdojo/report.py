"""The table and the plot."""

from __future__ import annotations

from pathlib import Path

from benchmarks.agentdojo import timing
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
    """Utility against attacks that got through; the size of a point is the share of tasks that ask."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "agentdojo"
    from matplotlib import pyplot

    shown = [rows[level.name, "core", "hijack"] for level in LEVELS if (level.name, "core", "hijack") in rows]
    shown = [row for row in shown if row.level != "deny all"]
    figure, axes = pyplot.subplots(figsize=(9, 6))
    for number, row in enumerate(shown, 1):
        x, y = 100 * row.through / row.pairs, 100 * row.strict / row.tasks
        person = 100 * row.asked / row.tasks
        colour = "tab:green" if "all:" in row.level else "tab:blue" if "provenance" in row.level else "tab:grey"
        axes.scatter(x, y, s=40 + 12 * person, color=colour, alpha=0.6, label=f"{number}  {row.level}")
        axes.annotate(str(number), (x, y), ha="center", va="center", fontsize=8)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(-0.2, 120)
    axes.set_xlabel("attacks through, % of 609 (replay, the model assumed hijacked)")
    axes.set_ylabel("strict utility, % of 97 user tasks")
    axes.set_title("AgentDojo v1.2.2 behind the guard; larger: a person is asked in more tasks")
    axes.legend(fontsize=7, loc="lower left", markerscale=0.4)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


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
        END,
    ]
    readme.write_text(before + "\n\n".join(parts) + after)
    plot(rows)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"
