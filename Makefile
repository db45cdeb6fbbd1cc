# The two commands of the README are `make demo` and `make test`. Each makes .venv on first use
# and installs nothing on the second.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help install demo test check clean

help:           ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/'

.venv/.installed: setup.py constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	touch $@

install: .venv/.installed   ## make .venv with everything in it

test: .venv/.installed      ## every test but the chaos table
	$(BIN)/python -m pytest

check: .venv/.installed     ## ruff, mypy and the fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -m 'not slow' -n 2

clean:                      ## remove what demo and tests made
	rm -rf demo runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
