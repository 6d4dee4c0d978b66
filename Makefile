PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
# one thread a process: the tests run in two processes, and threads that wait for each other are slow
TEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

.PHONY: demo test soak lint clean

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: .venv/installed  ## the whole job on a simulated cohort: demo/results.csv, demo/summary.json, demo/sites.png
	rm -rf demo
	$(BIN)/brio demo --out demo

test: lint  ## linter, type check and the fast tests
	$(TEST) -m "not soak"

soak: .venv/installed  ## the long tests
	$(TEST) -m soak

lint: .venv/installed
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

clean:
	rm -rf .venv demo build .mypy_cache .ruff_cache .pytest_cache
