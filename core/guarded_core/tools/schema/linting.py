"""What a schema must be before a tool is registered with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jsonschema_rs

from guarded_core.ground.errors import InvalidTool
from guarded_core.tools.schema.closing import close_read
from guarded_core.tools.schema.defaults import check_defaults
from guarded_core.tools.schema.document import kinds, read, refused
from guarded_core.tools.schema.placing import checked_here
from guarded_core.tools.schema.structure import check_structure
from guarded_core.tools.schema.terms import CLOSED, OPEN, Terms
from guarded_core.tools.schema.validation import Validator, compiled


def lint(schema: Mapping[str, Any], *, root_object: bool = True) -> None:
    """Refuse a schema that cannot be judged safely, in linear time and without looking anything up.

    Checked: JSON types and bounds; the metaschema of draft 2020-12; references (local, to schemas, no loop that
    consumes nothing, no recursion of exponential cost); patterns (a linear-time engine takes them: no lookaround, no
    backreference); defaults (each fits its own place, and a null that does not is taken for "no default"). With
    `root_object`, as for a tool's arguments, also that the root accepts objects only, and that it can be closed.

    Raises InvalidTool with the place and the reason.
    """
    if root_object:
        validators(schema)
        return
    try:
        _linted(schema)
    except RecursionError:
        raise InvalidTool("schema: nested too deeply") from None


def validators(
    schema: Mapping[str, Any], *, closed: bool = False, strict_integers: bool = False, terms: Terms = CLOSED
) -> dict[Terms, Validator]:
    """What judges a tool's arguments, by what the policy keeps open; `schema` is linted first.

    Args:
        schema: as the tool declares it.
        closed: it says itself what is open, and is judged as it is.
        strict_integers: see `Validator`.
        terms: the policy's own, beside those that keep nothing or everything open.

    Raises InvalidTool as `lint` does.
    """
    try:
        root = _linted(schema, terms)
        if kinds(root, root) != {"object"}:
            raise refused((), 'arguments are an object: say "type": "object" at the root')
        wanted = (replace(terms, open=CLOSED.open), replace(terms, open=OPEN.open), terms)
        if closed:
            return dict.fromkeys(wanted, Validator(root, strict_integers=strict_integers, is_read=True))
        made: dict[Terms, Validator] = {}
        for one in dict.fromkeys(wanted):
            shut = close_read(root, one)
            same = (validator for validator in made.values() if validator.judges_by(shut))
            made[one] = next(same, None) or Validator(shut, strict_integers=strict_integers, is_read=True)
        return made
    except RecursionError:
        raise InvalidTool("schema: nested too deeply") from None


def _linted(schema: Mapping[str, Any], terms: Terms = CLOSED) -> dict[str, Any]:
    root = read(schema)
    _check_metaschema(root)
    root = checked_here(root, terms) if terms.opaque_patterns else root
    check_structure(root)
    compiled(root)
    check_defaults(root)
    return root


def _check_metaschema(root: dict[str, Any]) -> None:
    try:
        jsonschema_rs.meta.validate(root)
    except jsonschema_rs.ValidationError as error:
        path = tuple(str(part) for part in error.instance_path)
        raise refused(path, f"not valid JSON Schema: {error.message[:200]}") from None
