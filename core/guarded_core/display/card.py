"""What anything is shown as: a title, facts and tables. Their texts are escaped where they are drawn, only there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from guarded_core.display.text import visible

Tone = Literal["", "good", "bad", "wait", "info", "unsure", "quiet"]

MAX_ROWS = 100


@dataclass(frozen=True, slots=True)
class Cell:
    """A text, and what it is to the reader: good news, bad news, something that waits, ..."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table.

    Attributes:
        columns: headings.
        rows: as many cells each.
        title: stands above it.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""

    def compact(self) -> Grid:
        """Without the columns that are empty in every row."""
        kept = [place for place in range(len(self.columns)) if any(row[place].text for row in self.rows)]
        rows = tuple(tuple(row[place] for place in kept) for row in self.rows)
        return Grid(tuple(self.columns[place] for place in kept), rows, self.title)

    def bounded(self) -> Grid:
        """With the first `MAX_ROWS` rows at most."""
        if len(self.rows) <= MAX_ROWS:
            return self
        return Grid(self.columns, self.rows[:MAX_ROWS], f"{self.title} (the first {MAX_ROWS} of {len(self.rows)})")

    def text(self) -> str:
        """The table in plain text."""
        rows = [self.columns, *(tuple(visible(cell.text) for cell in row) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


@dataclass(frozen=True, slots=True)
class Card:
    """One thing, as a person sees it.

    Attributes:
        title: what it is.
        badge: how it stands, in a word.
        facts: names and values; those without a value are left out.
        grids: tables; empty ones are left out.
        payload: a text of several lines in which every character shows already.
        whole: the same with nothing folded, where something is.
    """

    title: str
    badge: Cell | None = None
    facts: tuple[tuple[str, str], ...] = ()
    grids: tuple[Grid, ...] = ()
    payload: str | None = None
    whole: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "facts", tuple((name, text) for name, text in self.facts if text))
        object.__setattr__(self, "grids", tuple(grid.bounded() for grid in self.grids if grid.rows))


def plain(texts: Iterable[str]) -> tuple[Cell, ...]:
    """Cells without a tone."""
    return tuple(Cell(text) for text in texts)
