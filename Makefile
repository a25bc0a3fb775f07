PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-federation lint bench clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)

demo: $(READY)
	$(BIN)/chase demo

test: $(READY)
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

test-federation: $(READY)
	$(BIN)/python -m pytest -m federation

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.population

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
