"""A PostgreSQL server that quotes the row that it refuses, in its own words: nobody repeats them."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy

from guarded_core import CallbackApprover
from tests.core.test_no_payload_shown import TABLES, check, make_guard, yes

_QUOTES = "create function no() returns trigger language plpgsql as $$ begin raise exception 'no: %%', new; end $$"


@pytest.mark.parametrize(("table", "change"), TABLES)
def test_a_server_that_fails(
    table: str, change: str, postgres_url: str, way: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors, their tracebacks, the log and the reprs have nothing of the row."""
    guard = make_guard(CallbackApprover(yes), store=postgres_url)
    engine = sqlalchemy.create_engine(postgres_url)
    with engine.begin() as raw:
        raw.exec_driver_sql(_QUOTES)
        raw.exec_driver_sql(f"create trigger t before {change} on {table} for each row execute function no()")
    assert check(guard, way, caplog) >= 2
    guard.close()
    engine.dispose()
