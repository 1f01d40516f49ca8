"""How people see what the guard holds, in notebooks and at terminals: nothing that a payload could draw itself.

============  ===============================================================
`text`        characters that show, payloads, times, a request at the terminal
`card`        what anything is shown as: facts and tables, for HTML and rich
`html`        a card in HTML
`terminal`    a card for rich
`views`       the card of each thing that the core holds
`timeline`    the calls of a session as a picture
============  ===============================================================

Nothing here imports the rest of the core as it loads, so that everything in it can show itself.
"""

from guarded_core.display.text import payload_text, request_text, time_text, visible
from guarded_core.display.timeline import Timeline, timeline

__all__ = ["Timeline", "payload_text", "request_text", "time_text", "timeline", "visible"]
