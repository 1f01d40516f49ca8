"""The calls of a session as a picture: a line for each call, its events in the order they happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from guarded_core.display.html import TONES
from guarded_core.display.text import time_text, visible
from guarded_core.display.views import OUTCOMES, SHORT_ID, principal_text

if TYPE_CHECKING:
    from guarded_core.audit.event import AuditEvent

MAX_EVENTS = 60

_LANE, _STEP, _LABEL, _TAIL, _TOP = 30, 30, 190, 250, 34
# An image is drawn apart from its host's theme, so it brings a ground of its own.
_STYLE = (
    "text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2328}"
    ".ground{fill:#ffffff;stroke:#d0d7de}.lane{stroke:#afb8c1;stroke-width:2}.end{fill:#57606a}.title{font-weight:600}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.ground{fill:#161b22;stroke:#3d444d}.lane{stroke:#57606a}"
    ".end{fill:#9198a1}}" + "".join(f".{tone}{{fill:{colour}}}" for tone, colour in TONES.items())
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A picture that notebooks show.

    Attributes:
        svg: the whole of it, for a file.
        events: how many are in it.
    """

    svg: str
    events: int

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Timeline of {self.events} events>"


def timeline(events: Iterable[AuditEvent], title: str = "Calls, in the order of their events") -> Timeline:
    """Draw events, oldest first: a trail's, or those of one session; of many, the newest 60.

    Shapes: one line a call, one dot an event, coloured by its outcome; the call's last outcome and code stand behind.
    """
    every = list(events)
    newest = every[-MAX_EVENTS:]
    if len(newest) < len(every):
        title = f"{title} (the newest {len(newest)} of {len(every)} events)"
    calls: dict[str, list[tuple[int, AuditEvent]]] = {}
    for place, event in enumerate(newest):
        calls.setdefault(event.call_id, []).append((place, event))
    width = _LABEL + _STEP * len(newest) + _TAIL
    height = _TOP + _LANE * len(calls) + 12
    heading = _text(title)
    body = "".join(
        part for lane, call in enumerate(calls.values()) for part in _call(call, _TOP + _LANE * lane + _LANE // 2)
    )
    return Timeline(
        svg=(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            f' role="img" aria-label="{heading}"><style>{_STYLE}</style>'
            f'<rect class="ground" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="6"/>'
            f'<text class="title" x="14" y="24">{heading}</text>{body}</svg>'
        ),
        events=len(newest),
    )


def _call(call: list[tuple[int, AuditEvent]], y: int) -> Iterator[str]:
    """A call's line, dots and texts."""
    (first, event), (last, end) = call[0], call[-1]
    who = principal_text(event.principal, event.on_behalf_of)
    yield f'<text x="14" y="{y + 4}">{_text(_cut(event.tool, 20))}<title>{_text(f"{event.tool}, {who}")}</title></text>'
    if first < last:
        yield f'<line class="lane" x1="{_x(first)}" y1="{y}" x2="{_x(last)}" y2="{y}"/>'
    for place, happened in call:
        about = f"{happened.outcome.value}, {time_text(happened.time_ns)}, call {happened.call_id[:SHORT_ID]}"
        tone = OUTCOMES[happened.outcome]
        yield f'<circle class="{tone}" cx="{_x(place)}" cy="{y}" r="7"><title>{_text(about)}</title></circle>'
    said = end.outcome.value if end.code is None else f"{end.outcome.value}: {end.code}"
    said = f"{said} ×{end.count}" if end.count > 1 else said
    yield f'<text class="end" x="{_x(last) + 16}" y="{y + 4}">{_text(_cut(said, 40))}</text>'


def _x(place: int) -> int:
    return _LABEL + _STEP * place


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _text(text: str) -> str:
    return escape(visible(text))
