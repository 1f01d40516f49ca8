"""Who is calling: contexts of authenticated principals, and whose block a call is in."""

from guarded_core.session.callers import NOT_STORED, OVER, Callers, Nobody, current_context
from guarded_core.session.context import MAX_SESSION_ID, Issuer, ToolExecutionContext

__all__ = [
    "MAX_SESSION_ID",
    "NOT_STORED",
    "OVER",
    "Callers",
    "Issuer",
    "Nobody",
    "ToolExecutionContext",
    "current_context",
]
