# make demo   the main job, end to end: photographs -> decode and augmentation -> Keras fit
# make test   everything CI tests        make lint   style, types, import rules        make bench   the figures
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
ARGS ?=
TORCH ?= # e.g. torch==2.13.0: also test the torch backend of Keras

.PHONY: demo test lint bench clean

demo: $(VENV)/.demo
	$(BIN)/fastfeed demo $(if $(DATA),--data $(DATA)) $(ARGS)

test: $(VENV)/.dev
	$(if $(strip $(TORCH)),$(PIP) install -q $(TORCH))
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	for bench in benchmarks/bench_*.py; do $(BIN)/python $$bench $(ARGS) || exit 1; done

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("fastfeed needs Python 3.10 or newer, this is " + sys.version.split()[0] + \
	    "; try: make PYTHON=python3.11") if sys.version_info < (3, 10) else None'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	@echo "Installing fastfeed, Keras and TensorFlow into $(VENV); the first time takes a few minutes."
	$(PIP) install -q -e '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	@echo "Installing what the tests need (TensorFlow, JAX, DALI) into $(VENV); the first time takes a few minutes."
	$(PIP) install -q -e '.[dev]'
	@touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) .fastfeed-demo build dist
