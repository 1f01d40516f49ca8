"""A card in HTML: semantic tables that read well even where a host strips the stylesheet, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from guarded_core.display.card import Card, Cell, Grid
from guarded_core.display.text import in_medium, visible

# Texts take the host's colour and lines are a part of it, so that light and dark themes both fit; a badge is white on
# a tone that stands out from either.
TONES = {
    "good": "#1a7f37",
    "bad": "#cf222e",
    "wait": "#9a6700",
    "info": "#0969da",
    "unsure": "#8250df",
    "quiet": "#6e7781",
}
_BASE = """\
.guarded-tools{color:inherit;font-size:13px;line-height:1.5;max-width:100%;overflow-x:auto;
--line:var(--jp-border-color2,color-mix(in srgb,currentColor 25%,transparent))}
.guarded-tools>p{margin:.2em 0 .4em}
.guarded-tools table{border:0;border-collapse:collapse;font-size:inherit;margin:.2em 0 .8em;table-layout:auto}
.guarded-tools caption{caption-side:top;color:inherit;font-weight:600;padding:.2em 0;text-align:left;white-space:nowrap}
.guarded-tools th,.guarded-tools td{border:0;border-bottom:1px solid var(--line);color:inherit;max-width:40em;
overflow-wrap:break-word;padding:.2em 1em .2em 0;text-align:left;vertical-align:top}
.guarded-tools th{font-weight:600;white-space:nowrap}
.guarded-tools pre{background:none;border-left:3px solid var(--line);color:inherit;margin:.2em 0;padding:.2em 1em;
overflow-x:auto;white-space:pre}
.guarded-tools b.tone{border-radius:.6em;color:#fff;font-weight:600;padding:.05em .6em;white-space:nowrap}
"""
_RULES = _BASE + "".join(f".guarded-tools b.{tone}{{background:{colour}}}\n" for tone, colour in TONES.items())
STYLE = _RULES.replace(".guarded-tools", ".guarded-tools" * 2)  # to weigh more than what JupyterLab says of tables


def card_html(card: Card) -> str:
    """The card as one element with its own stylesheet."""
    title = f"<b>{_text(card.title)}</b>" + (f" {_cell(card.badge)}" if card.badge else "")
    parts = [f"<p>{title}</p>", _facts(card), *map(_grid, card.grids)]
    if card.payload is not None:
        parts.append(in_medium(card.payload, "html"))
    if card.whole is not None:
        parts.append(f"<details><summary>Nothing folded</summary>{in_medium(card.whole, 'html')}</details>")
    return f'<div class="guarded-tools"><style>\n{STYLE}</style>{"".join(parts)}</div>'


def _facts(card: Card) -> str:
    rows = "".join(f"<tr><th>{_text(name)}</th><td>{_text(text)}</td></tr>" for name, text in card.facts)
    return f"<table><tbody>{rows}</tbody></table>" if rows else ""


def _grid(grid: Grid) -> str:
    caption = f"<caption>{_text(grid.title)}</caption>" if grid.title else ""
    head = _row("th", map(_text, grid.columns))
    body = "".join(_row("td", map(_cell, row)) for row in grid.rows)
    return f"<table>{caption}<thead>{head}</thead><tbody>{body}</tbody></table>"


def _row(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"


def _cell(cell: Cell) -> str:
    text = _text(cell.text)
    return f'<b class="tone {cell.tone}">{text}</b>' if cell.tone and text else text


def _text(text: str) -> str:
    return escape(visible(text))
