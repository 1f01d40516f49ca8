"""Answers that are typed, and tied to the question that they answer.

What was typed or pasted before a question was on display is discarded. Where the call is dangerous only a code says yes
that was drawn at random for this showing, so that nothing that was typed ahead can hold it. Where input is not a
terminal, and so nothing can be discarded, an answer names the request.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TextIO

from guarded_core.approvals.request import Answer, ApprovalRequest
from guarded_core.tools.spec import ToolRisk

_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # no two that look alike
_CODE_LENGTH = 4
_MOST_TRIES = 3
_FEWEST_DIGITS = 8
_YES, _NO = ("y", "yes"), ("n", "no")


def new_code() -> str:
    """Four random characters, for one showing of one question."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(_CODE_LENGTH))


def needs_code(request: ApprovalRequest) -> bool:
    """Whether a plain yes is too little: for destructive and financial tools, and for those of unknown risk."""
    return request.risk is None or request.risk in (ToolRisk.DESTRUCTIVE, ToolRisk.FINANCIAL)


def at_prompt(
    request: ApprovalRequest, by: str, show: Callable[[bool], None], read: Callable[[str, bool], str | None]
) -> Answer | None:
    """A person's answer to one question, at a prompt that takes nothing typed before.

    ``all`` shows the question again with nothing folded. Anything but yes is no; a plain ``y`` where a code is wanted
    is neither, and the question is put again.

    Args:
        request: the question.
        by: who sits there.
        show: draws the question; whole, or with long texts folded.
        read: draws a prompt and reads a line, where told so of those typed since then; None at the end of input.
    """
    show(False)
    for _ in range(_MOST_TRIES):
        code = new_code() if needs_code(request) else None
        wanted = "approve this call? " + ("[y/N] " if code is None else f"Type {code} for yes [{code}/N] ")
        line = read(f"{by}, {wanted}", True)
        if line is None:
            return None
        word = line.strip().lower()
        if word == "all":
            show(True)
        elif code is None or word not in _YES:
            approve = word in _YES if code is None else word == code
            return Answer(by=by, approve=approve, reason=(read("Reason (optional): ", False) or "").strip())
    return None


def from_stream(request: ApprovalRequest, by: str, show: Callable[[bool], None], stream: TextIO) -> Answer | None:
    """The first line that names this request and says yes or no: ``y REQUEST [reason]``; others answer nothing.

    Args:
        request: the question.
        by: who sends the lines.
        show: draws the question.
        stream: of lines; None is the answer at its end.
    """
    show(False)
    for line in iter(stream.readline, ""):
        word, _, rest = line.strip().partition(" ")
        named, _, reason = rest.strip().partition(" ")
        is_named = len(named) >= _FEWEST_DIGITS and request.id.startswith(named)
        if is_named and word.lower() in (*_YES, *_NO):
            return Answer(by=by, approve=word.lower() in _YES, reason=reason.strip())
    return None


def discard_pending(stream: TextIO) -> None:
    """Throw away what was typed at a terminal and not read yet."""
    try:
        import termios
    except ImportError:  # Windows
        _discard_on_windows()
    else:
        termios.tcflush(stream.fileno(), termios.TCIFLUSH)


def _discard_on_windows() -> None:
    from importlib import import_module

    console = import_module("msvcrt")
    while console.kbhit():
        console.getwch()


def read_line(stream: TextIO, write: TextIO, prompt: str, is_fresh: bool) -> str | None:
    """Draw a prompt and read a line at a terminal, where told so one that was typed since then; None at the end."""
    print(prompt, end="", file=write, flush=True)
    if is_fresh:
        discard_pending(stream)  # only now is the whole question there
    return stream.readline() or None
