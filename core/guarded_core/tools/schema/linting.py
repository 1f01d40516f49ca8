"""What a schema must be before a tool is registered with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from guarded_core.ground.errors import InvalidTool
from guarded_core.tools.schema.closing import close
from guarded_core.tools.schema.defaults import check_defaults
from guarded_core.tools.schema.document import kinds, read, refused
from guarded_core.tools.schema.structure import check_structure
from guarded_core.tools.schema.validation import Validator, compiled


def lint(schema: Mapping[str, Any], *, root_object: bool = True) -> None:
    """Refuse a schema that cannot be judged safely, in linear time and without looking anything up.

    Checked: JSON types and bounds; the metaschema of draft 2020-12; references (local, to schemas, no loop that
    consumes nothing, no recursion of exponential cost); patterns (a linear-time engine takes them: no lookaround, no
    backreference); defaults (each fits its own place, and a null that does not is taken for "no default"). With
    `root_object`, as for a tool's arguments, also that the root accepts objects only, and that it can be closed.

    Raises InvalidTool with the place and the reason.
    """
    try:
        root = read(schema)
        _check_metaschema(root)
        check_structure(root)
        compiled(root)
        check_defaults(root)
        if root_object:
            if kinds(root, root) != {"object"}:
                raise refused((), 'arguments are an object: say "type": "object" at the root')
            for keep_open in (False, True):
                Validator(close(root, keep_open=keep_open))
    except RecursionError:
        raise InvalidTool("schema: nested too deeply") from None


def _check_metaschema(root: dict[str, Any]) -> None:
    try:
        jsonschema_rs.meta.validate(root)
    except jsonschema_rs.ValidationError as error:
        path = tuple(str(part) for part in error.instance_path)
        raise refused(path, f"not valid JSON Schema: {error.message[:200]}") from None
