# `make arena` opens the app, `make test` checks everything: minutes on two cores. Both build the environment in .venv first
# if needed. `make quick` is for every save: lint, and the tests that start no worlds. `make test-all` adds the long tests.
# Needs python3 (3.11 or newer, with venv), make and gcc.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --disable-pip-version-check
READY := .venv/ready
COMPILERS := .venv/compilers
# The last section of requirements.lock, which only the checks need, starts with this line.
SECTION := ^\# compilers for GPUs
# Processes that run tests side by side, each with worlds of its own: make test WORKERS=2. Three are quicker than two on two
# cores, as timed runs wait for each other. A file of tests stays in one process. Files with slow tests go out first
# (tests/conftest.py).
WORKERS ?= 3
SIDE_BY_SIDE := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Tests are compiled once and not by every process, whatever the environment says.
test test-all quick: export PYTHONDONTWRITEBYTECODE :=

.PHONY: arena test test-all quick lint test-gpu environment clean

arena: environment
	@$(BIN)/pkb-arena

test: lint
	$(BIN)/pytest -q -m "gpu and not long" tests/gpu
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not long and not gpu"

test-all: lint
	$(BIN)/pytest -q -m gpu tests/gpu
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not gpu"

quick: lint
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not slow and not long and not gpu" tests/unit tests/ui

# The tests of tests/gpu that need GPUs use them one after another.
test-gpu: environment
	$(BIN)/pytest -m gpu tests/gpu

lint: environment $(COMPILERS)
	$(BIN)/ruff check
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy
	$(BIN)/lint-imports

# Worlds cannot write to the checkout: without bytecode each of them would compile the ranks' modules anew.
environment: $(READY)
	@$(BIN)/python -m compileall -q arena problems sandbox screens

# Where nvidia-smi answers and python3 has a torch of its own, that torch is kept: it fits the machine's driver.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "pkb-arena needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@command -v gcc >/dev/null || echo "note: no gcc; C++ kernels on CPU ranks need one" >&2
	@if nvidia-smi >/dev/null 2>&1 && $(PYTHON) -c 'import torch' 2>/dev/null; then \
	  echo "GPUs found: keeping this machine's torch"; \
	  $(PYTHON) -m venv --system-site-packages .venv || exit 1; \
	  sed '/$(SECTION)/,$$d; /^torch==/d' requirements.lock > .venv/requirements.txt; \
	else \
	  $(PYTHON) -m venv .venv || { echo "python3 -m venv failed; on Debian: apt install python3-venv" >&2; exit 1; }; \
	  sed '/$(SECTION)/,$$d' requirements.lock > .venv/requirements.txt; \
	fi
	@echo "Once, for some minutes: installing what pkb-arena needs into .venv; torch is the largest part of it."
	@$(PIP) -r .venv/requirements.txt
	@$(PIP) --quiet --no-deps --no-build-isolation --editable .
	@if nvidia-smi >/dev/null 2>&1; then \
	  $(BIN)/python -P -m arena.machine.cupy_choice > .venv/cupy.txt; \
	  if [ -s .venv/cupy.txt ] && ! $(PIP) -r .venv/cupy.txt; then \
	    echo "note: CuPy could not be installed; CUDA C++ kernels need it. 'pkb-arena doctor --fix-plan' has the command." >&2; \
	  fi; \
	fi
	@echo "Installed. 'make clean' removes .venv again."
	@touch $@

# Where nvidia-smi answers, CuPy and Triton are the machine's own, too, and the checks compile with those.
$(COMPILERS): $(READY)
	@if nvidia-smi >/dev/null 2>&1; then \
	  echo "GPUs found: keeping this machine's CuPy and Triton"; \
	else \
	  echo "installing compilers for GPUs (360 MB) for the checks"; \
	  sed '1,/$(SECTION)/d' requirements.lock > .venv/compilers.txt && $(PIP) --no-deps -r .venv/compilers.txt; \
	fi
	@touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
