"""Who steps generators that stand for a `with` block: contextlib, and the fixtures of pytest and its async plugins."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from operator import attrgetter
from types import CodeType, FrameType

_CONTEXTLIB = (
    contextlib._GeneratorContextManager.__enter__.__code__,
    contextlib._AsyncGeneratorContextManager.__aenter__.__code__,
)

# Where they are loaded: the function that steps a fixture, or that holds the one that does.
_FIXTURES = (
    ("_pytest.fixtures", "call_fixture_func"),
    ("pytest_asyncio.plugin", "_wrap_asyncgen_fixture"),
    ("pytest_asyncio.plugin", "_wrap_syncgen_fixture"),
    ("anyio._backends._asyncio", "TestRunner._run_tests_and_fixtures"),
)


def stands_for_a_block(driver: FrameType | None) -> bool:
    """Whether a generator that the frame `driver` steps stands for a `with` block.

    The very code of the driver is looked for: what modules and functions call themselves is anybody's choice.
    """
    return driver is not None and any(driver.f_code is code for code in _known())


def _known() -> Iterator[CodeType]:
    yield from _CONTEXTLIB
    if "pytest" not in sys.modules:
        return
    for module, path in _FIXTURES:
        try:
            code = attrgetter(path)(sys.modules[module]).__code__
        except (KeyError, AttributeError):
            continue  # not loaded, or a version that does it elsewhere
        yield code
        yield from _nested(code)


def _nested(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _nested(constant)
