# A fresh machine with Python 3.11 or newer needs nothing but these targets: each sets up what it uses.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
# Two test processes share two cores: one thread each, or they wait for each other.
PYTEST := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -q
FAST := not slow and not data and not gpu

.PHONY: help demo lint test test-slow test-data test-gpu clean

help:
	@echo "make demo        train a small model on Python's own source and sample from it (minutes)"
	@echo "make test        lint, types, the import contract and the tests (minutes)"
	@echo "make test-slow   the long kills, the fuzzing, the slow truths, and the report in a browser (needs chromium)"
	@echo "make test-data   DATA=folder: tests on the paper's corpora"
	@echo "make test-gpu    tests on a CUDA device; writes their record to results/gpu"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

demo: $(READY)
	rm -rf demo
	$(BIN)/unroll data info stdlib --min-count 50
	$(BIN)/unroll train stdlib --min-count 50 --preset small --batches 3000 --test-tokens 3000 --out demo/run
	@echo; echo "--- windowed:"
	$(BIN)/unroll sample demo/run --prompt "def " --length 500 --temperature 0.6 --seed 1
	@echo; echo "--- progressive:"
	$(BIN)/unroll sample demo/run --prompt "def " --length 500 --temperature 0.6 --seed 2 --sample progressive

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(PYTEST) -n 2 -m "$(FAST)" --doctest-modules src tests

test-slow: $(READY)
	$(PYTEST) -n 2 -m slow tests

test-data: $(READY)
	UNROLL_DATA="$(DATA)" $(PYTEST) -m data tests

test-gpu: $(READY)
	$(PYTEST) -m gpu tests/gpu

clean:
	rm -rf .venv demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
