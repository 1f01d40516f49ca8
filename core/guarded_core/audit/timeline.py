"""The calls of a session as a picture: a line for each call, its events in the order they happened."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape

from guarded_core.audit.card import OUTCOMES, SHORT_ID
from guarded_core.audit.event import AuditEvent
from guarded_core.display.html import TONES
from guarded_core.display.text import principal_text, time_text, visible

__all__ = ["MAX_EVENTS", "Timeline", "timeline"]

MAX_EVENTS = 60

_LANE, _LABEL, _EVENTS, _TAIL, _TOP = 30, 190, 480, 250, 34
# An image is drawn apart from its host's theme, so it brings a ground of its own.
_LIGHT = {
    "text": "font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2328",
    ".title": "font-weight:600",
    ".end": "fill:#57606a",
    ".ground": "fill:#ffffff;stroke:#d0d7de",
    ".lane": "stroke:#afb8c1;stroke-width:2",
    **{f".{tone}": f"fill:{colour}" for tone, colour in TONES.items()},
}
_DARK = {
    "text": "fill:#e6edf3",
    ".end": "fill:#9198a1",
    ".ground": "fill:#161b22;stroke:#3d444d",
    ".lane": "stroke:#57606a",
}


def _sheet(rules: dict[str, str]) -> str:
    return "".join(f".guarded-timeline {selector}{{{said}}}" for selector, said in rules.items())


_STYLE = f"{_sheet(_LIGHT)}@media(prefers-color-scheme:dark){{{_sheet(_DARK)}}}"


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
    numbered = deque(enumerate(events, 1), maxlen=MAX_EVENTS)
    newest, total = [event for _, event in numbered], numbered[-1][0] if numbered else 0
    if len(newest) < total:
        title = f"{title} (the newest {len(newest)} of {total:,} events)"
    calls: dict[str, list[tuple[int, AuditEvent]]] = {}
    for place, event in enumerate(newest):
        calls.setdefault(event.call_id, []).append((place, event))
    step = max(10, min(30, _EVENTS // max(1, len(newest))))
    width = _LABEL + step * len(newest) + _TAIL
    height = _TOP + _LANE * len(calls) + 12
    heading = _text(title)
    body = "".join(
        part for lane, call in enumerate(calls.values()) for part in _call(call, _TOP + _LANE * lane + _LANE // 2, step)
    )
    return Timeline(
        svg=(
            f'<svg xmlns="http://www.w3.org/2000/svg" class="guarded-timeline" width="{width}" height="{height}"'
            f' viewBox="0 0 {width} {height}" role="img" aria-label="{heading}"><style>{_STYLE}</style>'
            f'<rect class="ground" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="6"/>'
            f'<text class="title" x="14" y="24">{heading}</text>{body}</svg>'
        ),
        events=len(newest),
    )


def _call(call: list[tuple[int, AuditEvent]], y: int, step: int) -> Iterator[str]:
    """A call's line, dots and texts."""
    event, end = call[0][1], call[-1][1]
    places = [_LABEL + step * place for place, _ in call]
    who = principal_text(event.principal, event.on_behalf_of)
    yield f'<text x="14" y="{y + 4}">{_text(_cut(event.tool, 20))}<title>{_text(f"{event.tool}, {who}")}</title></text>'
    if len(call) > 1:
        yield f'<line class="lane" x1="{places[0]}" y1="{y}" x2="{places[-1]}" y2="{y}"/>'
    for x, (_, happened) in zip(places, call, strict=True):
        about = f"{happened.outcome.value}, {time_text(happened.time_ns)}, call {happened.call_id[:SHORT_ID]}"
        dot = f'class="{OUTCOMES[happened.outcome]}" cx="{x}" cy="{y}" r="{min(7, step // 2)}"'
        yield f"<circle {dot}><title>{_text(about)}</title></circle>"
    said = end.outcome.value if end.code is None else f"{end.outcome.value}: {end.code}"
    said = f"{said} ×{end.count}" if end.count > 1 else said
    yield f'<text class="end" x="{places[-1] + 16}" y="{y + 4}">{_text(_cut(said, 40))}</text>'


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _text(text: str) -> str:
    return escape(visible(text))
