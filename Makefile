# The two commands of the README. Each starts from nothing: it makes a virtual environment and installs the pinned packages.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OUTPUT ?= runs/quickstart
export HF_HUB_DISABLE_TELEMETRY := 1

.PHONY: demo test check docs setup clean

demo: $(VENV)/.installed
	$(BIN)/rl-qg pipeline preset=quickstart output_dir=$(OUTPUT)

# A process for each core, of one thread each; the tests of a file stay together, because they share what its fixtures made.
test: check $(VENV)/.deepspeed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadfile

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
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

# The tests of ZeRO run on CPUs. Beside a CUDA build of torch DeepSpeed asks for a CUDA toolkit as soon as it is imported, so there
# it is left to you, and without it those tests are skipped.
$(VENV)/.deepspeed: $(VENV)/.installed
	if $(BIN)/python -c "import sys, torch; sys.exit(torch.version.cuda is not None)"; then \
		DS_BUILD_OPS=0 $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[deepspeed]"; fi
	touch $@

clean:
	rm -rf $(VENV)
