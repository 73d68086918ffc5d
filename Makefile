# make demo       the main job, end to end, on data that comes with the install
# make test       lint, types and the quick tests: nothing beyond Python is needed
# make test-all   the same with the slow tests and those that need the datasets
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo test test-all lint types clean

demo: $(INSTALLED)
	$(BIN)/sensorveil demo

# Two workers on two cores: threads of the attackers' trees would only wait for each other.
test test-all: export OMP_NUM_THREADS ?= 1

test: lint types
	$(BIN)/python -m pytest -n 2 -m "not slow and not data and not browser"

test-all: lint types
	$(BIN)/python -m pytest -n 2

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/lint-imports --no-cache

types: $(INSTALLED)
	$(BIN)/mypy

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sensorveil needs Python 3.11 or later; name one with PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]" -c constraints.txt
	touch $(INSTALLED)

clean:
	rm -rf .venv demo runs
