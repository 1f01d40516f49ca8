"""What could quote a payload: exceptions as they are printed, logs, events, and the reprs of all that is alive."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Iterator
from typing import Any

PAYLOAD = "canary-payload-4711"
RESULT = "canary-result-4712"
_OURS = ("guarded_core", "guarded_langchain", "guarded_llamaindex")
_SCRIPTS = ("guarded_langchain.testing", "guarded_llamaindex.testing")  # models that say what a test has them say


def printed(error: BaseException) -> str:
    """An exception as it is printed, with all that an error reporter would follow."""
    texts = ["".join(traceback.format_exception(error))]
    seen: BaseException | None = error
    while seen is not None:
        texts += [str(seen), repr(seen), repr(seen.args), repr(getattr(seen, "__notes__", ""))]
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return "\n".join(texts)


def quoting() -> Iterator[str]:
    """Of the objects of this project that are alive, those whose repr or str quotes the payload or the result."""
    for thing in gc.get_objects():
        kind = type(thing)
        module = getattr(kind, "__module__", None)
        if not isinstance(module, str) or module.partition(".")[0] not in _OURS or module in _SCRIPTS:
            continue
        for text in (_text(repr, thing), _text(str, thing)):
            if quotes(text):
                yield f"{module}.{kind.__qualname__}"
                break


def _text(how: Any, thing: Any) -> str:
    try:
        return str(how(thing))
    except Exception:  # half made, or another thread's
        return ""


def quotes(text: str) -> bool:
    """Whether a text has the payload or the result in it."""
    return PAYLOAD in text or RESULT in text
