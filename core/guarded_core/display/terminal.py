"""A card for a rich console. Texts go in as text: square brackets in a name are not markup."""

from __future__ import annotations

from typing import Any

from guarded_core.display.card import Card, Cell, Grid
from guarded_core.display.text import visible

STYLES = {
    "": "",
    "good": "green",
    "bad": "red",
    "wait": "yellow",
    "info": "cyan",
    "unsure": "magenta",
    "quiet": "dim",
}


def card_rich(card: Card) -> Any:
    """The card as one renderable."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    title = Text(visible(card.title), style="bold")
    if card.badge:
        title.append("  ").append_text(_text(card.badge))
    parts: list[Any] = [title, *([_facts(card)] if card.facts else []), *map(grid_rich, card.grids)]
    if card.payload is not None:
        parts.append(Padding(Text(card.payload), (0, 2)))
    return Group(*parts)


def grid_rich(grid: Grid) -> Any:
    """The grid as a table."""
    from rich.table import Table

    table = Table(title=visible(grid.title) or None, title_justify="left")
    for column in grid.columns:
        table.add_column(column, overflow="fold")
    for row in grid.rows:
        table.add_row(*map(_text, row))
    return table


def _facts(card: Card) -> Any:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, text in card.facts:
        table.add_row(_text(Cell(name, "quiet")), _text(Cell(text)))
    return table


def _text(cell: Cell) -> Any:
    from rich.text import Text

    return Text(visible(cell.text), style=STYLES[cell.tone])
