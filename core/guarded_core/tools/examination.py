"""What can be known of a tool before it is called: its own parser is tried with samples when it is wrapped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from guarded_core.ground.errors import InvalidTool
from guarded_core.tools import samples
from guarded_core.tools.parsing import Parser, Unsteady, settled
from guarded_core.tools.port import ToolPort
from guarded_core.tools.schema.document import copied
from guarded_core.tools.schema.terms import Terms
from guarded_core.tools.spec import ToolSpec

_TRIES = 400


class ToolWarning(UserWarning):
    """Something about a tool that was wrapped, or left out, that its user may not expect."""


def check_steady(tool: str, parser: Parser | None, schema: dict[str, Any], opaque: frozenset[str]) -> None:
    """Raise InvalidTool, with their names, where parameters that are not `opaque` do not read back as themselves."""
    names = frozenset[str]() if parser is None else unsteady(parser, schema, opaque)
    if names:
        listed = ", ".join(map(repr, sorted(names)))
        raise InvalidTool(
            f"tool {tool!r}: what {listed} is parsed to does not read back as itself (a validator that changes its own "
            "result, or a serializer that says less than the value), so that something else would run than was judged. "
            f"Make it idempotent, or have it judged as it is written, in the policy: [tools.{tool}] "
            f"opaque = {json.dumps(sorted(names))}"
        )


def odd_about(port: ToolPort, terms: Terms, opaque: frozenset[str]) -> tuple[str, ...]:
    """What somebody who wraps a tool may not expect of it, on these terms."""
    spec, parser = port.spec, port.parser()
    return tuple(_odd(spec, parser, terms, opaque)) + tuple(port.oddities())


def _odd(spec: ToolSpec, parser: Parser | None, terms: Terms, opaque: frozenset[str]) -> Iterator[str]:
    if places := spec.free_form(terms):
        if places == [""]:
            yield "takes any argument beside its own, and is shown and called without; open_arguments = true keeps them"
        else:
            listed = ", ".join(places)
            yield f"free-form, so accepted without properties only: {listed}; open = {json.dumps(places)} keeps it open"
    if places := spec.opaque_patterns():
        yield f"only the tool checks the pattern of {', '.join(places)}"
    if names := opaque & spec.schema.get("properties", {}).keys():
        yield f"judged as written, whatever the tool makes of it: {', '.join(sorted(names))}"
    if parser is not None and (names := accepts_more(parser, dict(spec.schema)) - opaque):
        yield (
            f"a validator takes more than the schema, which is what a model is shown and all that is accepted: "
            f"{', '.join(sorted(names))}; WithJsonSchema can declare it"
        )


def unsteady(parser: Parser, schema: dict[str, Any], opaque: frozenset[str] = frozenset()) -> frozenset[str]:
    """The parameters of which some sample does not read back as itself.

    Args:
        parser: what parses the tool's arguments.
        schema: JSON Schema of them.
        opaque: those that need not.
    """
    found: set[str] = set()
    parser, accepted, stuck = _accepted(parser, schema)
    passed = opaque | stuck  # a validator of the model's may still refuse what stands for these
    for arguments in accepted:
        try:
            settled(parser, copied(arguments), opaque=passed | found)
        except Unsteady as error:
            found |= (error.names & arguments.keys()) or _blamed(parser, arguments, passed | found)
        except Exception:  # noqa: S112 - a validator that took them a moment ago
            continue
    return frozenset(found)


def _blamed(parser: Parser, arguments: dict[str, Any], opaque: frozenset[str]) -> set[str]:
    """The parameter without which all others read back as themselves; every one, where there is no such."""
    for name in arguments:
        try:
            settled(parser, copied(arguments), opaque=opaque | {name})
        except Exception:  # noqa: S112 - then it is another one
            continue
        return {name}
    return set(arguments)


def accepts_more(parser: Parser, schema: dict[str, Any]) -> frozenset[str]:
    """The parameters whose own validators would take values that the schema does not: none of those gets to them."""
    names: frozenset[str] = parser.read_first() & schema.get("properties", {}).keys()
    if not names:
        return names
    parser, accepted, _ = _accepted(parser, schema)
    return frozenset(name for name in names if accepted and _takes_more(parser, schema, accepted[0], name))


def _takes_more(parser: Parser, schema: dict[str, Any], base: dict[str, Any], name: str) -> bool:
    fits: Callable[[Any], bool] = samples.fitting(schema, schema["properties"][name]) or bool
    for value in samples.ANYTHING:
        if fits(value):
            continue
        try:
            parser.parse({**copied(base), name: copied(value)})
        except Exception:  # noqa: S112 - it takes no such value
            continue
        return True
    return False


def _accepted(parser: Parser, schema: dict[str, Any]) -> tuple[Parser, list[dict[str, Any]], frozenset[str]]:
    """Sample arguments that the tool's parser takes; as of a tool without the parameters that it takes none of."""
    drawn = samples.of_parameters(schema)
    found = list(_taken(parser, schema, drawn))
    stuck = frozenset(name for name, values in drawn.items() if not values)
    if found or not stuck:
        return parser, found, frozenset()
    parser = parser.without(stuck)
    return parser, list(_taken(parser, schema, drawn)), stuck


def _taken(parser: Parser, schema: dict[str, Any], drawn: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """What the parser takes of all parameters, or else of the required ones; what it refuses of one leaves `drawn`.

    Each is given a value, since a default may be computed, and is to be computed for calls alone.
    """
    tries = _TRIES
    for names in (list(drawn), [name for name in drawn if name in schema.get("required", ())]):
        index, is_taken = 0, False
        while tries > 0 and index < max((len(drawn[name]) for name in names), default=1):
            tries -= 1
            # Each at another index, so that two that were swapped are seen.
            made = {
                name: drawn[name][(index + shift) % len(drawn[name])] for shift, name in enumerate(names) if drawn[name]
            }
            try:
                parser.parse(copied(made))
            except Exception as error:
                refused = parser.refused(error) & made.keys()
                for name in refused:  # it takes no such value, whatever stands beside it
                    drawn[name].remove(made[name])
                index += not refused
                continue
            index, is_taken = index + 1, True
            yield made
        if is_taken:
            return
