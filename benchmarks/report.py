"""What a benchmark reports: tables with their goals, as Markdown, and the plots beside them."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent
PLOTS = FOLDER / "plots"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One line of the table.

    Attributes:
        name: what was measured.
        value: the figure.
        unit: its unit.
        wanted: the bound it is to keep, such as "≤ 1.3"; empty for information.
        met: whether it does.
    """

    name: str
    value: float
    unit: str
    wanted: str = ""
    met: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What was wanted of one figure, and whether it is so."""

    what: str
    wanted: str
    found: str
    met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Horizontal bars, one a label; several of one label make a group, told by their legend.

    Attributes:
        name: of the file, without an ending.
        title, unit: what is drawn.
        bars: for each legend, value by label.
        logarithmic: the scale.
        line: a value to mark.
    """

    name: str
    title: str
    unit: str
    bars: dict[str, dict[str, float]]
    logarithmic: bool = False
    line: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table, and what is to be said about it."""

    title: str
    text: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    goals: Sequence[Goal] = ()
    plot: Plot | None = None
    code: str = field(default="")

    def markdown(self) -> str:
        """The section, with the path of its plot."""
        parts = [f"## {self.title}", self.text]
        if self.rows:
            parts.append("\n".join(_lines(self.columns, self.rows)))
        if self.code:
            parts.append(f"```\n{self.code.strip()}\n```")
        if self.plot is not None:
            parts.append(f"![{self.plot.title}](plots/{self.plot.name}.svg)")
        return "\n\n".join(parts)


def machine() -> str:
    """The kind of machine, and nothing that tells which."""
    system = f"{os.cpu_count()} cores of a shared {platform.machine().replace('_', '-')} server, {platform.system()}"
    return f"{system}, {platform.python_implementation()} {'.'.join(platform.python_version_tuple()[:2])}"


def results(sections: Sequence[Section], *, quick: bool) -> str:
    """The whole report."""
    goals = [goal for section in sections for goal in section.goals]
    met = "every goal is met" if all(goal.met for goal in goals) else "what is not met is explained below"
    head = [
        "# Results",
        f"Measured on {machine()}, by `python -m benchmarks{' --quick' if quick else ''}`. Absolute times drift with "
        "the machine's load; ratios are taken from calls in random order in one process, and are what counts. "
        "A figure in brackets is the 95 % interval of a ratio of medians. Whether a change made calls slower is "
        "another question, which `python -m benchmarks --against <other checkout>` answers.",
    ]
    if goals:
        rows = [[goal.what, goal.wanted, goal.found, "yes" if goal.met else "**no**"] for goal in goals]
        head += [f"## Goals: {met}", "\n".join(_lines(["Goal", "wanted", "found", "met"], rows))]
    return "\n\n".join([*head, *(section.markdown() for section in sections)]) + "\n"


def draw(plot: Plot) -> None:
    """Write the plot as SVG."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = plot.name
    from matplotlib import pyplot

    labels = list(dict.fromkeys(label for bars in plot.bars.values() for label in bars))
    thickness = 0.8 / len(plot.bars)
    figure, axes = pyplot.subplots(figsize=(8, 0.9 + 0.28 * len(labels) * len(plot.bars)), layout="constrained")
    for number, (legend, bars) in enumerate(plot.bars.items()):
        places = [place + number * thickness for place, label in enumerate(labels) if label in bars]
        drawn = axes.barh(places, list(bars.values()), thickness, label=legend)
        axes.bar_label(drawn, fmt="%.3g", padding=3, fontsize=8)
    axes.set_yticks([place + (len(plot.bars) - 1) * thickness / 2 for place in range(len(labels))], labels)
    axes.invert_yaxis()
    axes.set_xlabel(plot.unit)
    axes.set_title(plot.title)
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    if plot.logarithmic:
        axes.set_xscale("log")
    if plot.line is not None:
        axes.axvline(plot.line, color="grey", linestyle=":")
    if len(plot.bars) > 1:
        axes.legend(frameon=False, fontsize=8)
    PLOTS.mkdir(exist_ok=True)
    figure.savefig(PLOTS / f"{plot.name}.svg", metadata={"Date": None})
    pyplot.close(figure)


def _lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    ruler = ["---", *("---:" for _ in columns[1:])]
    return [f"| {' | '.join(cells)} |" for cells in (columns, ruler, *rows)]
