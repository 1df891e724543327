# The two commands of the README. Each starts from nothing: it makes a virtual environment and installs the pinned packages.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OUTPUT ?= runs/quickstart
export HF_HUB_DISABLE_TELEMETRY := 1

.PHONY: demo test check setup clean

demo: $(VENV)/.installed
	$(BIN)/rl-qg pipeline preset=quickstart output_dir=$(OUTPUT)

test: check
	$(BIN)/python -m pytest

check: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV)
