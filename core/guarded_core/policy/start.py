"""A policy to start from, for tools that exist already."""

from __future__ import annotations

from collections.abc import Iterable

from guarded_core.tools.spec import ToolRisk, ToolSpec

_HEAD = """\
version = 1

# Every tool below may be called, and nothing else. Its risk says how it is treated:
#   read_only, mutating         runs
#   destructive, financial      a person approves the exact arguments of every call
# Nobody but you knows what a tool can do. A tool that does not say so itself stands here as destructive:
# lower it where all it does is read, or change what can be changed back.
"""

_TAIL = """
# [roles.support]
# tools = [{names}]
# max_calls = 20

# [[rules]]
# kind = "limit_tool_param"
# tool = "..."
# param = "amount"
# max = 100
"""


def starting_policy(specs: Iterable[ToolSpec]) -> str:
    """The TOML of a policy that allows all of `specs`, each with the risk its code declares, or else as destructive."""
    specs = sorted(specs, key=lambda spec: spec.name)
    tables = [
        f'\n# {_line(spec.description)}\n[tools.{spec.name}]\nrisk = "{spec.risk or ToolRisk.DESTRUCTIVE}"\n'
        for spec in specs
    ]
    names = ", ".join(f'"{spec.name}"' for spec in specs[:2])
    return _HEAD + "".join(tables) + _TAIL.format(names=names)


def _line(description: str) -> str:
    # A server may have written it: it must not end the comment.
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in description).split())
    return line if len(line) <= 100 else line[:99] + "…"
