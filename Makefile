PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
# one thread a process: the tests run in two processes, and threads that wait for each other are slow;
# compiled modules are kept, also where the environment says otherwise: many tests start processes of their own
# their folders lie in memory where it has room (4 GB), since jobs wait for the disk after every file
MEMORY := $(shell df -Pk /dev/shm 2>/dev/null | awk '$$6 == "/dev/shm" && $$4 > 4000000 {print "PYTEST_DEBUG_TEMPROOT=/dev/shm"}')
TEST := $(MEMORY) PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup \
	-o tmp_path_retention_count=1

.PHONY: demo readme results test unit soak bench lint docs package browser audit clean

.venv/package-installed: pyproject.toml constraints.txt  # what users need
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/installed: .venv/package-installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

.venv/docs-installed: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

demo: .venv/package-installed  ## simulated hospitals, audited and evaluated, and a new one: demo/report.html, demo/predictions
	rm -rf demo
	$(BIN)/brio demo --out demo

readme: .venv/installed  ## the demonstration in the README and its page, the picture of its report, and all drawings
	$(BIN)/python docs/fill_demo.py
	$(BIN)/python docs/draw_figures.py

results: .venv/installed  ## the result pages docs/results/*.md and the table of the README from evidence/, counts of tests, GPU hours
	$(BIN)/python docs/generate_results.py
	$(BIN)/python docs/count_cases.py
	$(BIN)/python docs/count_hours.py
	$(BIN)/python docs/draw_figures.py

test: browser .venv/installed  ## linter, type check, import contract and, beside them, the fast tests
	@$(MAKE) --no-print-directory -j 2 lint unit

unit: .venv/installed
	$(TEST) -m "not soak"

soak: .venv/installed  ## the long tests
	$(TEST) -m soak

BENCH ?= --device cpu
KEEP ?= build/bench-kept.json
bench: .venv/installed  ## ratios to other code in one run; BENCH="--scans 100" for a quick look, KEEP=evidence/bench/NAME.json for the page
	mkdir -p build
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python -m pytest benchmarks/bench -o addopts= -o python_files='bench_*.py' -o python_functions='bench_*' \
	    --benchmark-columns=min --benchmark-json build/bench.json $(BENCH)
	$(BIN)/python benchmarks/bench/ratios.py build/bench.json --keep $(KEEP)

lint: .venv/installed
	$(BIN)/ruff check src tests benchmarks docs tools
	$(BIN)/ruff format --check src tests benchmarks docs tools
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

docs: .venv/docs-installed  ## the documentation site, build/docs/index.html: gallery executed, warnings are errors, links checked
	rm -rf build/docs docs/api/generated docs/auto_examples
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs
	$(BIN)/python docs/check_site.py build/docs

audit: .venv/docs-installed  ## licences and pinned versions of all dependencies; vulnerabilities where pip-audit is installed
	$(BIN)/python tools/audit_dependencies.py

package: .venv/installed  ## wheel and sdist in dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist

browser:  ## the report is tested in Chromium: find it, or install it where we may (root on Debian), or say so
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	[ -n "$$BRIO_CHROMIUM" ] || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing chromium" && \
	  apt-get -qq update >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium >/dev/null; } || \
	echo "no Chromium here: the browser tests of the report will be skipped"

clean:
	rm -rf .venv demo build dist docs/auto_examples docs/api/generated .mypy_cache .ruff_cache .pytest_cache
