PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-federation test-label-studio lint bench clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)

demo: $(READY)
	$(BIN)/chase demo

test: $(READY)
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test-federation: $(READY)
	$(BIN)/python -m pytest -m federation

test-label-studio: $(READY)
	test -x .label-studio/bin/label-studio || $(PYTHON) -m venv .label-studio
	.label-studio/bin/pip install --quiet --disable-pip-version-check label-studio==1.23.2
	CHASE_LABEL_STUDIO=.label-studio/bin/label-studio $(BIN)/python -m pytest -m label_studio tests/labelling

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.own_networks
	$(BIN)/python -m benchmarks.population

clean:
	rm -rf $(VENV) .label-studio build dist .pytest_cache .mypy_cache .ruff_cache
