"""The two kinds of pattern in rules: globs over tool names, and regular expressions over values, in linear time."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import jsonschema_rs

from guarded_core.ground.errors import InvalidPolicy

MAX_PATTERN = 4096


_GLOB = re.compile(r"[A-Za-z0-9_-]*[*?[][A-Za-z0-9_*?!\[\]-]*", re.ASCII)


def is_glob(tool: str) -> bool:
    """Whether `tool` stands for several names: it has ``*``, ``?`` or ``[``, and what names are made of."""
    return _GLOB.fullmatch(tool) is not None


def names_tool(pattern: str, tool: str) -> bool:
    """Whether `pattern`, a name or a glob, names `tool`; case counts."""
    return pattern == tool or (is_glob(pattern) and fnmatchcase(tool, pattern))


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression on an engine that matches in linear time: no lookaround, no backreferences.

    ``$`` is the end of the text, and a newline before it counts. A text with a pattern that the engine does not take is
    still a Pattern: `error` says why, and the rule denies.

    Attributes:
        text: the expression, at most 4096 characters.
        whole: whether all of a text has to match; otherwise any part of it.
        error: why the engine does not take it, empty where it does.
    """

    text: str
    whole: bool = False
    error: str = field(init=False, default="")
    _validator: Any = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if len(self.text) > MAX_PATTERN:
            raise InvalidPolicy(f"a pattern has at most {MAX_PATTERN} characters")
        validator = _compile(self.text)
        if validator is not None and self.whole:
            # The text stands by itself first: "a)|(b" must not close the group that is put around it.
            validator = _compile(f"^(?:{self.text})$")
        object.__setattr__(self, "_validator", validator)
        object.__setattr__(self, "error", "" if validator is not None else _why_not(self.text))

    def matches(self, text: str) -> bool:
        """Whether `text` matches. A pattern with an `error` matches nothing: ask for that first."""
        return self._validator is not None and bool(self._validator.is_valid(text))


def _compile(pattern: str) -> Any:
    options = jsonschema_rs.RegexOptions()
    try:
        return jsonschema_rs.Draft202012Validator({"type": "string", "pattern": pattern}, pattern_options=options)
    except (jsonschema_rs.ValidationError, ValueError):
        return None


def _why_not(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"the pattern does not compile: {error}"
    return (
        "the pattern does not compile on the linear-time engine, "
        "which has no lookaround and no backreferences, and bounds repetition"
    )
