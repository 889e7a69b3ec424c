# Every target sets up .venv by itself (scripts/environment); with nothing to do that takes a few hundredths of a second.
#
#   make demo                 a fit of an embedded example, end to end
#   make test                 lint, types and tests: what CI runs       make test WORKERS=0 PYTEST_ARGS="-k grid"
#   make test-long            the tests that take minutes
#   make lint | format        ruff and mypy | rewrite the files as ruff wants them
#   make paper                the paper by experiment: hours           make paper QUICK=1    minutes; decides nothing
#   make docs                 the documentation site, in build/site
#   make fuzz                 fuzz every reader and the command line     make fuzz FUZZ_ARGS="--guided --count 20000"
#   make bench                the benchmarks
#   make clean                remove .venv and everything that was made
#
# PYTHON=/path/to/python3.12 chooses the interpreter of a new .venv.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-long fuzz lint format docs paper bench clean ready-plain ready-test ready-bench

WORKERS ?= 2
PYTEST_ARGS ?=
FUZZ_ARGS ?=
PAPER_OUT ?= reproduction
DEMO_OUT ?= demo-run
export PYTHON

python := .venv/bin/python

help:
	@sed -n '2,/^$$/s/^# \{0,1\}//p' Makefile

demo: ready-plain
	@$(python) examples/two_by_two.py --out "$(DEMO_OUT)"

test: lint
	@scripts/browser || true  # without one, the tests in tests/browser fail and say why
	@$(python) -m pytest --numprocesses=$(WORKERS) $(PYTEST_ARGS)

test-long: ready-test
	@$(python) -m pytest -m long $(PYTEST_ARGS)

fuzz: ready-test
	@$(python) -m tests.fuzz $(FUZZ_ARGS)

lint: ready-test
	@$(python) -m ruff check
	@$(python) -m ruff format --check --quiet || { $(python) -m ruff format --check; exit 1; }
	@$(python) -m mypy

format: ready-test
	@$(python) -m ruff check --fix --exit-zero
	@$(python) -m ruff format

docs: export NO_MKDOCS_2_WARNING = 1
docs: ready-test
	@$(python) -m mkdocs build --strict --quiet && echo "Open build/site/index.html"

paper: ready-test
	@$(python) -m paper all $(if $(QUICK),--quick) --out "$(PAPER_OUT)"

bench: ready-bench
	@$(python) -m benchmarks

clean:
	@rm -rf .venv .cache build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis demo-run
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

ready-plain:
	@scripts/environment

ready-test:
	@scripts/environment test

ready-bench:
	@scripts/environment bench
