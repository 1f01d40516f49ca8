"""The package loads LlamaIndex late, and says what to install where it is not there."""

import subprocess
import sys
from typing import Any

import pytest


def run(code: str) -> str:
    """The output of a new process, or its error."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"], capture_output=True, text=True
    )
    return done.stdout + done.stderr


def test_importing_it_does_not_load_llamaindex() -> None:
    """LlamaIndex takes seconds to load; it is loaded with the first name that needs it."""
    code = """
import guarded_llamaindex
before = {name.partition(".")[0] for name in sys.modules} & {"llama_index", "workflows"}
guarded_llamaindex.guard_tool
print(before, "llama_index" in sys.modules, "guarded_llamaindex.mcp" in sys.modules)
"""
    assert run(code).strip() == "set() True False"


@pytest.mark.parametrize("name", ["guard_tools", "assert_all_guarded", "guarded_retriever"])
def test_missing_extra_is_named(name: str) -> None:
    """Without llama-index-core, the error says which extra to install."""
    code = f"sys.modules['llama_index'] = None\nfrom guarded_llamaindex import {name}"
    error = run(code)
    assert 'ImportError: guarded_llamaindex needs an extra: pip install "guarded-tools[llamaindex]"' in error


def test_another_missing_module_is_not_mistaken_for_the_extra() -> None:
    """An import error from elsewhere is told as it is."""
    error = run("sys.modules['guarded_core.guard'] = None\nfrom guarded_llamaindex import guard_tool")
    assert "guarded-tools[llamaindex]" not in error
    assert "guarded_core.guard" in error


def test_unknown_name_is_an_attribute_error() -> None:
    """As of any module."""
    import guarded_llamaindex

    with pytest.raises(AttributeError, match="has no attribute 'guard_tolls'"):
        _: Any = guarded_llamaindex.guard_tolls
    assert sorted(dir(guarded_llamaindex)) == sorted(guarded_llamaindex.__all__)
