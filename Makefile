# `make` lists the targets. Each starts from nothing: it makes a virtual environment and installs the pinned packages.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OUTPUT ?= runs/quickstart
export HF_HUB_DISABLE_TELEMETRY := 1
unexport PYTHONDONTWRITEBYTECODE  # the tests start hundreds of processes
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt
# All cores compile what is installed; pip would take one. Packages have files that are no Python: errors do not count.
COMPILE := $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true

# Processes of one thread each, one more than there are cores, since tests wait for the commands that they start. The
# tests of a file stay together, because they share what its fixtures made; files with slow tests come first
# (tests/conftest.py).
WORKERS := $(shell $(PYTHON) -c 'import os; print(min(5, (os.cpu_count() or 1) + 1))')
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help demo test test-fast mutants check docs setup clean

help:
	@echo "make demo       the quickstart: a whole run on the embedded corpus, in $(OUTPUT)"
	@echo "make test       make check and every test: 20 to 25 minutes on two cores"
	@echo "make test-fast  the tests that are not slow, without make check: at most 2 minutes on two cores"
	@echo "make mutants    faults put into the lines that changed since REV, or SAMPLE=100 SEED=7 anywhere: are they noticed?"
	@echo "make check      format, lint and types (ruff, mypy)"
	@echo "make docs       the documentation as a site, in site/"
	@echo "make setup      the virtual environment $(VENV)"
	@echo "make clean      remove the virtual environment"

# One thread for the generator, so that its samples do not depend on the number of cores; readers train side by side.
demo: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/rl-qg pipeline preset=quickstart output_dir=$(OUTPUT)

test: $(VENV)/.installed
	$(MAKE) -j2 --output-sync=target check $(VENV)/.deepspeed
	$(PYTEST)

test-fast: $(VENV)/.installed
	$(PYTEST) -m "not slow"

mutants: $(VENV)/.installed
	$(BIN)/python -m tests.mutants $(REV:%=--rev %) $(SAMPLE:%=--sample %) $(SEED:%=--seed %)

check: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The documentation as a site, in site/; the tests build it too.
docs: $(VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) torch
	$(INSTALL) --editable ".[dev]"
	$(COMPILE)
	touch $@

# The tests of ZeRO run on CPUs. With a CUDA build of torch, DeepSpeed asks for a CUDA toolkit as soon as it is imported,
# so there it is left to you, and without it those tests are skipped.
$(VENV)/.deepspeed: $(VENV)/.installed
	if $(BIN)/python -c "import sys, torch; sys.exit(torch.version.cuda is not None)"; then \
		DS_BUILD_OPS=0 $(INSTALL) --editable ".[deepspeed]"; fi
	$(COMPILE)
	touch $@

clean:
	rm -rf $(VENV)
