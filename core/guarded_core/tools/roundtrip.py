"""Arguments that pass through a pydantic model: parsed once, dumped to JSON, and run as the parse of that JSON."""

from __future__ import annotations

import marshal
from typing import Any, get_args

from pydantic import BaseModel, Secret, SecretBytes, SecretStr

from guarded_core.ground.errors import InvalidTool

_MASKED = (SecretStr, SecretBytes, Secret)


def check_model(model: type[BaseModel], tool: str, *, skip: frozenset[str] = frozenset()) -> None:
    """Raise InvalidTool where two different arguments of `model` could share one dump: masked and excluded fields.

    An approver would be shown ``**********``, and an approval of one secret would cover any other. `skip` names fields
    of `model` itself that are never a model's to give.
    """
    _check(model, tool, set(), skip)


def _check(model: type[BaseModel], tool: str, seen: set[type], skip: frozenset[str] = frozenset()) -> None:
    if model in seen:
        return
    seen.add(model)
    for name, field in model.model_fields.items():
        if name in skip:
            continue
        if field.exclude:
            raise InvalidTool(
                f"tool {tool!r}: argument {name!r} is excluded from dumps, so it cannot be approved; keep it"
            )
        for part in _parts(field.annotation):
            if isinstance(part, type) and issubclass(part, _MASKED):
                raise InvalidTool(
                    f"tool {tool!r}: argument {name!r} is masked ({part.__name__}), so it cannot be approved; "
                    "let the application inject secrets instead of the model"
                )
            if isinstance(part, type) and issubclass(part, BaseModel):
                _check(part, tool, seen)


def _parts(annotation: Any) -> list[Any]:
    inner = [part for arg in get_args(annotation) for part in _parts(arg)]
    return [annotation, *inner]


def dump(parsed: BaseModel, *, exclude: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The parsed arguments as JSON, under the names that the model parses them back from; `exclude` names fields."""
    return parsed.model_dump(mode="json", by_alias=True, exclude=set(exclude), warnings="error")


def written(arguments: dict[str, Any]) -> bytes:
    """The arguments, told from all others to the type (1, 1.0 and True differ). Raises ValueError for no plain JSON.

    Within one process only: to see whether a model dumps what it was given, whatever a validator does to it in place.
    """
    return marshal.dumps(arguments, 2)  # from version 3 on, equal values may be written differently


def read(arguments: bytes) -> Any:
    """A copy of what was written."""
    return marshal.loads(arguments)  # noqa: S302 - this process wrote it
