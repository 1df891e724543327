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
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=20

# The commit that the working tree is compared with.
REV ?= last-landed

.PHONY: help demo test test-fast test-affected test-all mutants check docs size setup clean golden-update same-as

help:
	@echo "make demo       the quickstart: a whole run on the embedded corpus, in $(OUTPUT)"
	@echo "make test       make check and all tests but the long ones: about 20 minutes on two cores"
	@echo "make test-fast  the tests that are not slow, without make check"
	@echo "make test-affected  the long tests whose subject has changed since REV (default: the last landed commit)"
	@echo "make test-all   make check, every test, and an hour of drawn commands"
	@echo "make mutants    faults put into the lines that changed since REV, or SAMPLE=100 SEED=7 anywhere: are they noticed?"
	@echo "make check      format, lint, types, and the numbers that pages claim"
	@echo "make docs       the documentation as a site, in site/"
	@echo "make size       files, lines, functions, keys, commands, and minutes of the last make test"
	@echo "make golden-update    store the hashes of what commands write (tests/golden_outputs), and print what changed"
	@echo "make same-as REV=main compare what all commands write with REV, and name each field that differs: 4 minutes"
	@echo "make setup      the virtual environment $(VENV)"
	@echo "make clean      remove the virtual environment"

# One thread for the generator, so that its samples do not depend on the number of cores; readers train side by side.
demo: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/rl-qg pipeline preset=quickstart output_dir=$(OUTPUT)

test: $(VENV)/.tested-with
	$(PYTEST) -m "not long" --junitxml=$(VENV)/make-test.xml

# Exit code 5 says that no test is selected.
test-affected: $(VENV)/.deepspeed
	$(PYTEST) --affected=$(REV) $(if $(MINUTES),--minutes=$(MINUTES)) -rs || test $$? = 5

# About an hour on one core; FIRST chooses other draws.
DRAWS := experiments/faults/draws.py --draws 3000 --runs 60 --first $(or $(FIRST),10000)

test-all: $(VENV)/.tested-with
	RL_QG_LIBRARIES=1 $(PYTEST)
	$(BIN)/python $(DRAWS) --folder $(VENV)/draws --output $(VENV)/draws/draws.json

test-fast: $(VENV)/.installed
	$(PYTEST) -m "not slow"

mutants: $(VENV)/.installed
	$(BIN)/python -m tests.mutants $(if $(SAMPLE),--sample $(SAMPLE) --seed $(or $(SEED),0),--rev $(REV))

.PHONY: $(VENV)/.tested-with
$(VENV)/.tested-with: $(VENV)/.installed
	$(MAKE) -j2 --output-sync=target check $(VENV)/.deepspeed

check: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tests.docs.claims

golden-update: $(VENV)/.installed
	$(BIN)/python -m tests.golden_outputs update

same-as: $(VENV)/.installed
	$(BIN)/python -m tests.golden_outputs same-as "$(REV)"

# The documentation as a site, in site/; the tests build it too.
docs: $(VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

size: $(VENV)/.installed
	@$(BIN)/python -m tests.size $(VENV)/make-test.xml

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
