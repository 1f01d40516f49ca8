"""What every test runs under."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from guarded_core import MemoryStore

# The machine's speed is no property of the code.
settings.register_profile("guarded", deadline=None)
settings.load_profile("guarded")

# A developer's own tracing must not send what the tests do to a service.
os.environ["LANGSMITH_TRACING"] = os.environ["LANGCHAIN_TRACING_V2"] = "false"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """An empty store of each kind."""
    if request.param == "memory":
        yield MemoryStore()
        return
    sql = pytest.importorskip("guarded_core.store.sql")
    with sql.SqlStore.open(f"sqlite:///{tmp_path}/guard.db") as opened:
        yield opened
