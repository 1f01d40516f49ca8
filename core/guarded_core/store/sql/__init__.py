"""The store in SQL: SQLite embedded, PostgreSQL shared by many processes; its event table is the audit trail.

The modules, from the outside in: store (SqlStore), trail (reading and verifying), taking (what a commit takes), lanes
and writer (how events are written), records and statements, tables, database, clock.
"""

from __future__ import annotations

try:
    import sqlalchemy as _sqlalchemy  # noqa: F401
except ImportError as error:
    raise ImportError('a SQL store needs SQLAlchemy: pip install "guarded-tools[sql]"') from error

from guarded_core.store.sql.store import SqlStore
from guarded_core.store.sql.trail import SqlTrail, StoreVerification

__all__ = ["SqlStore", "SqlTrail", "StoreVerification"]
