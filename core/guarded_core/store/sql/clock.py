"""The database's clock: one for all processes that share a store."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class now_ns(FunctionElement[int]):
    """The database's clock, ns since the epoch: milliseconds on SQLite, microseconds on PostgreSQL."""

    name = "now_ns"
    type = BigInteger()
    inherit_cache = True


@compiles(now_ns, "sqlite")
def _sqlite_now(element: now_ns, compiler: Any, **options: Any) -> str:
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000000"


@compiles(now_ns, "postgresql")
def _postgresql_now(element: now_ns, compiler: Any, **options: Any) -> str:
    # Not now(): that is when the transaction began, before it waited for its locks.
    return "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000"
