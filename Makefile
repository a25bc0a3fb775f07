PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Many containers forbid bytecode. Without it each of the hundreds of processes that tests start would compile anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo test test-federation test-cluster test-label-studio lint lint-style lint-types lint-imports bench clean

# pip compiles every file that it installs, on one core; here what nearly every start imports is compiled, on all cores,
# and the rest when it is first imported. Some packages ship files that are no Python of this version: no error.
$(READY): pyproject.toml constraints.txt setup.py $(wildcard src/chase/learning/native/*.[ch])
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e ".[dev]"
	cd $(VENV)/lib/python3*/site-packages && ../../../bin/python -W ignore -m compileall -q -j 0 -x '/tests?/' \
	  torch numpy scipy matplotlib pandas pyarrow pydantic flwr hypothesis "$(CURDIR)/src" >/dev/null || true
	touch $(READY)

install: $(READY)

demo: $(READY)
	$(BIN)/chase demo

test: $(READY)
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test-federation: $(READY)
	$(BIN)/python -m pytest -m federation

test-cluster: $(READY)
	$(BIN)/python -m pytest -m cluster

test-label-studio: $(READY)
	test -x .label-studio/bin/label-studio || $(PYTHON) -m venv .label-studio
	.label-studio/bin/pip install --quiet --disable-pip-version-check label-studio==1.23.2
	CHASE_LABEL_STUDIO=.label-studio/bin/label-studio $(BIN)/python -m pytest -m label_studio tests/labelling

lint: lint-style lint-types lint-imports

lint-style: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

lint-types: $(READY)
	$(BIN)/mypy

lint-imports: $(READY)
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.own_networks
	$(BIN)/python -m benchmarks.population

clean:
	rm -rf $(VENV) .label-studio build dist .pytest_cache .mypy_cache .ruff_cache
