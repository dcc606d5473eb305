# The commands of this repository. A fresh machine needs Python 3.11 or newer with pip and venv, and make.
#
#   make demo    make demo EXECUTOR=ray    make test    make PYTHON=python3.12 test
#
# .venv is made when there is none, and filled again only when pyproject.toml or constraints.txt has changed.

PYTHON ?= python3
EXECUTOR ?= local
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test slow bench tables chaos fuzz methods errors lint format clean
.DELETE_ON_ERROR:

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */  make \1\t/' | expand -t 16

demo: $(STAMP)  ## predict the delays of real flights, beside scikit-learn (a few minutes; EXECUTOR=local, ray or dask)
	@echo "== demo: index, predict and evaluate on the flights that left New York in 2013 (executor: $(EXECUTOR))"
	@$(BIN)/python pipelines/flights.py demo-output --executor $(EXECUTOR)

TESTS = $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test: $(STAMP)  ## the tests (a quarter of an hour on two cores; ARGS="tests/laws" for some of them)
	@echo "== test: pytest over tests/ (laws, peers, cases, system); warnings are errors"
	@$(TESTS) $(if $(ARGS),$(ARGS),-m "not slow" tests)

slow: $(STAMP)  ## the tests that take longest: the code of all pages in docs/, rounds of chaos, terminals, the benchmark's code
	@echo "== slow: pytest over those of tests/ that are marked so"
	@$(TESTS) -m slow tests

bench: $(STAMP)  ## the measurements of speed and memory (wants a quiet machine)
	@echo "== bench: one table, ours and the peer side by side (some minutes)"
	@$(BIN)/python -m tests.speed.bench $(ARGS)

tables: $(STAMP)  ## learned kernels on public tables beside this checkout (hours; ARGS="--sets yacht,wine --splits 3")
	@echo "== tables: a line for each split, a table at the end"
	@$(BIN)/python -m tests.speed.tables $(ARGS)

chaos: $(STAMP)  ## kill workers, drivers and nodes at random moments; every byte is compared (some minutes; ARGS=--pipelines)
	@echo "== chaos: a line for each kill, a table at the end"
	@$(BIN)/python -W error -m tests.chaos $(ARGS)

fuzz: $(STAMP)  ## change files of a small world and ask every verb about it (a minute; ARGS="--seconds 600 --seed 1")
	@echo "== fuzz: a paragraph for each case that is wrong, counts at the end"
	@$(BIN)/python -W error -m tests.fuzz $(ARGS)

methods: $(STAMP)  ## compare every method with other people's code, and write the README's table
	@$(BIN)/python -W ignore -m tests.peers.agreement

errors: $(STAMP)  ## every error that is raised on purpose: where, expected, given, remedy
	@$(BIN)/python -m tests.errors $(ARGS)

lint: $(STAMP)  ## rules, format, types and import contracts
	@echo "== lint: ruff check";          $(BIN)/ruff check .
	@echo "== lint: ruff format --check"; $(BIN)/ruff format --check .
	@echo "== lint: mypy --strict";       $(BIN)/mypy
	@echo "== lint: import contracts";    $(BIN)/lint-imports

format: $(STAMP)  ## repair what ruff can repair
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean:  ## remove .venv, caches and what a demo or a build wrote
	rm -rf $(VENV) build dist demo-output .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Always with the constraints: without them pip may choose a newer torch, which brings gigabytes of GPU libraries.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "locdist needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; \
	  exit 2; }
	@test -x $(BIN)/python || { echo "== making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "== installing locdist and its tools into $(VENV) (about a minute)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev,demo]'
	@touch $@
