"""What every test runs under."""

from __future__ import annotations

import os

from hypothesis import settings

# The machine's speed is no property of the code.
settings.register_profile("guarded", deadline=None)
settings.load_profile("guarded")

# A developer's own tracing must not send what the tests do to a service.
os.environ["LANGSMITH_TRACING"] = os.environ["LANGCHAIN_TRACING_V2"] = "false"
