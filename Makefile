# `make test` on a fresh machine needs Python 3.11 or newer, and make. Everything else goes into .venv.
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,\
	$(shell $p -c 'import sys; sys.version_info >= (3, 11) and print("$p")' 2>/dev/null)) python3)
BIN := .venv/bin

.PHONY: test test-full lint demo notebooks bench bench-agentdojo test-floor test-upstream clean
.DELETE_ON_ERROR:

test: lint
	$(BIN)/pytest

# The random schedules a thousand times, where `test` plays some of each kind.
test-full: lint
	GUARDED_FULL=1 $(BIN)/pytest

lint: .venv/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

demo: .venv/.installed
	$(BIN)/guarded demo

# Run again, to keep what they print beside their cells.
notebooks: .venv/.installed
	$(BIN)/python -m notebooks

bench: .venv/.installed
	$(BIN)/python -m benchmarks

# In an environment of its own: agentdojo's dependencies are heavy.
bench-agentdojo: .venv-agentdojo/.installed
	.venv-agentdojo/bin/python -m benchmarks.agentdojo --everything

.venv-agentdojo/.installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --editable '.[langchain,llamaindex]' agentdojo==0.1.35 matplotlib
	@touch $@

# Other packages' own tests, from PyPI, bare and guarded: docs/differences.md has what differs.
test-upstream: .venv-upstream/.installed
	.venv-upstream/bin/python tests/upstream/compare.py

.venv-upstream/.installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(@D)/bin/python -m pip install --quiet --editable '.[langgraph,postgres]' --group upstream
	@touch $@

# The lowest versions that pyproject.toml allows.
test-floor: .venv-floor/.installed
	.venv-floor/bin/pytest tests/core tests/langchain tests/llamaindex \
		--ignore-glob='*/test_generated.py' # bare tools of older LangChains lose aliased fields

.venv-floor/.installed: CONSTRAINTS := -c tests/floor.txt
.venv-floor/.installed: tests/floor.txt
.venv/.installed .venv-floor/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Python 3.11 or newer is needed; $(PYTHON) is not. Name another: make $(MAKECMDGOALS) PYTHON=...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo 'Python cannot make virtual environments here. On Debian or Ubuntu: apt-get install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(@D)/bin/python -m pip install --quiet --editable '.[all]' --group dev $(CONSTRAINTS)
	@touch $@

clean:
	rm -rf .venv .venv-floor .venv-agentdojo .venv-peers .venv-upstream build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
