"""Who is calling: contexts of authenticated principals, and whose block a call is in."""

from guarded_core.session.bounds import MAX_SESSION_ID
from guarded_core.session.callers import Callers, Nobody, current_context
from guarded_core.session.context import Issuer, ToolExecutionContext

__all__ = [
    "MAX_SESSION_ID",
    "Callers",
    "Issuer",
    "Nobody",
    "ToolExecutionContext",
    "current_context",
]
