# `make arena` opens the app. `make test` checks the code; `make check-problems` checks the data, the baseline and the house kernel
# of each problem, and runs whenever problems/ has changed; `make quick` runs lint beside the unit tests that take no time;
# `make test-all` adds further cases and the long tests; `make bench` measures. Needs python3 (3.11 or
# newer, with venv), make and gcc.
#
# `make arena` installs the section [arena] of requirements.lock into .venv. The checks add [checks] and [compilers].

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --disable-pip-version-check
# Stamps: each is newer than what it was installed from.
READY := .venv/ready
CHECKS := .venv/checks
# A section reaches from its heading to the next heading.
section = sed -n '/^\# \[$(1)\]/,/^\# \[/p' requirements.lock
# Processes that run tests, each with worlds of its own: make test WORKERS=2. They wait for half of their time. A file of tests
# stays in one process, and so do files that share a referee. Files with slow tests go out first (tests/conftest.py).
WORKERS ?= 5
SIDE_BY_SIDE := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# The tests of `make test`, by their marks. Continuous integration runs all but the long ones: make test TESTS="not long".
TESTS ?= not long and not problems and not further

# Tests are compiled once and not by every process, whatever the environment says.
test test-all check-problems quick: export PYTHONDONTWRITEBYTECODE :=

.PHONY: arena test test-all check-problems quick quick-tests mutants lint test-gpu bench environment clean

arena: environment
	@$(BIN)/pkb-arena

test: lint
	@echo "Running the tests: 5 minutes on 2 quiet cores."
	@if nvidia-smi >/dev/null 2>&1; then $(BIN)/pytest -q -m "gpu and $(TESTS)" tests/gpu; fi
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not gpu and $(TESTS)"

check-problems: environment $(CHECKS)
	@echo "Checking the data, the baseline and the house kernel of each problem."
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "problems and not long"

test-all: lint
	@echo "Running all tests, the long ones too."
	$(BIN)/pytest -q -m gpu tests/gpu
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not gpu"

quick: environment $(CHECKS)
	@$(MAKE) --no-print-directory --jobs 2 lint quick-tests

quick-tests:
	$(BIN)/pytest -q $(SIDE_BY_SIDE) -m "not slow and not gpu and $(TESTS)" tests/unit

# Mistakes that no test finds, and a folder's score: make mutants ARGS="sandbox/memory --sample 40"
mutants: environment $(CHECKS)
	$(BIN)/python tests/mutants.py $(ARGS)

# The tests of tests/gpu that need GPUs use them one after another.
test-gpu: environment $(CHECKS)
	$(BIN)/pytest -m gpu tests/gpu

lint: environment $(CHECKS)
	$(BIN)/ruff check
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: environment
	@echo "Measuring what BENCHMARKS.md promises: some minutes. Use nothing else on this machine meanwhile."
	$(BIN)/python -m benchmarks all

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
	  $(call section,arena) | sed '/^torch==/d' > .venv/arena.txt; \
	else \
	  $(PYTHON) -m venv .venv || { echo "python3 -m venv failed; on Debian: apt install python3-venv" >&2; exit 1; }; \
	  $(call section,arena) > .venv/arena.txt; \
	fi
	@echo "Installing what pkb-arena runs on into .venv, once: about a minute, 240 MB to download, 1.1 GB on disk. torch is most of it."
	@$(PIP) -r .venv/arena.txt
	@$(PIP) --quiet --no-deps --no-build-isolation --editable .
	@if nvidia-smi >/dev/null 2>&1; then \
	  $(BIN)/python -P -m benchmarks.cupy_choice > .venv/cupy.txt; \
	  if [ -s .venv/cupy.txt ] && ! $(PIP) -r .venv/cupy.txt; then \
	    echo "note: CuPy could not be installed; CUDA C++ kernels need it. 'pkb-arena doctor --fix-plan' has the command." >&2; \
	  fi; \
	fi
	@echo "Installed. 'make clean' removes .venv again."
	@touch $@

# Where nvidia-smi answers, CuPy and Triton are the machine's own, and the checks compile with those.
$(CHECKS): $(READY)
	@echo "Installing what the checks need as well, once: about a minute, 470 MB to download, 1.5 GB on disk."
	@$(call section,checks) > .venv/checks.txt && $(PIP) -r .venv/checks.txt
	@if nvidia-smi >/dev/null 2>&1; then \
	  echo "GPUs found: keeping this machine's CuPy and Triton"; \
	else \
	  $(call section,compilers) > .venv/compilers.txt && $(PIP) --no-deps -r .venv/compilers.txt; \
	fi
	@touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
