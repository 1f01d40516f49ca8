"""The policy: what is allowed, how dangerous it is, within what limits, under which rules.

`file` reads and writes TOML, `lint` says what is odd, `start` begins one from tools.
"""

from guarded_core.policy.policy import (
    DEFAULT_INPUT_BYTES,
    DEFAULT_MAX_CALLS,
    DEFAULT_OUTPUT_BYTES,
    OriginSettings,
    Role,
    ToolExecutionPolicy,
    ToolSettings,
)

__all__ = [
    "DEFAULT_INPUT_BYTES",
    "DEFAULT_MAX_CALLS",
    "DEFAULT_OUTPUT_BYTES",
    "OriginSettings",
    "Role",
    "ToolExecutionPolicy",
    "ToolSettings",
]
