"""A call put together from its parts, for tests that propose one without a framework."""

from __future__ import annotations

from typing import Any

from guarded_core import ToolSpec
from guarded_core.pipeline.call import Call
from guarded_core.tools.port import FunctionPort

OF_THE_PORT = (
    *("complete", "check_output", "reports_failure", "seen", "handed_back"),
    *("encode", "decode", "drifted", "run"),
)


def call_of(spec: ToolSpec, function: Any, **parts: Any) -> Call:
    """The call of a port of `spec` and `function`.

    Args:
        spec: the tool.
        function: takes the effective arguments.
        parts: fields of `Call`; signals, wraps_errors and set_by_application of the port; and methods to put in the
            place of the port's (`OF_THE_PORT`), which take what those take; `complete` takes the arguments alone.
    """
    port = FunctionPort(spec, function)
    complete = parts.pop("complete", None)
    if complete is not None:
        port.complete = lambda bound, arguments: complete(arguments)  # type: ignore[method-assign]
    for name in ("signals", "wraps_errors", "set_by_application", *OF_THE_PORT):
        if name in parts:
            setattr(port, name, parts.pop(name))
    return Call(**{"tool": spec.name, "port": port, **parts})
