"""How people see what the guard holds, in notebooks and at terminals: nothing that a payload could draw itself.

============  ===============================================================
`safe`        the characters that are drawn as they are; all others are spelt out
`lookalikes`  letters that can be taken for others, in names and addresses
`text`        texts, payloads and times, for every medium
`card`        what anything is shown as: facts and tables, for HTML and rich
`html`        a card in HTML
`terminal`    a card for rich
`cards`       the card of each thing that shows itself; stands on top of them
============  ===============================================================
"""

from typing import Any

from guarded_core.display.text import payload_text, principal_text, time_text, visible
from guarded_core.ground.moved import moved_name

__all__ = ["payload_text", "principal_text", "time_text", "visible"]

_MOVED = {
    "Timeline": "guarded_core.audit.timeline:Timeline",
    "request_text": "guarded_core.approvals.card:request_text",
    "timeline": "guarded_core.audit.timeline:timeline",
}


def __getattr__(name: str) -> Any:
    return moved_name(__name__, name, _MOVED)
