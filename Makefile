# make demo       the main job, end to end: photographs -> decode and augmentation -> Keras fit
# make test       what is not marked slow, in minutes        make test-all   everything, as CI does
# make lint       style, types, import rules                 make bench      the figures
# make gpu-check   all that needs a GPU, on a machine that has one: benchmarks/results/README.md
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
ARGS ?=
TORCH ?= # e.g. torch==2.13.0: also test PyTorch, Keras on it, Accelerate and Lightning
WORKERS ?= 2 # processes that tests are spread over, by file
PYTEST = $(BIN)/python -m pytest $(if $(filter-out 1,$(strip $(WORKERS))),-n $(WORKERS) --dist loadfile --no-loadscope-reorder)
JPEGLIB ?= /usr/include/jpeglib.h
HIGHWAY ?= /usr/include/hwy/highway.h

.PHONY: demo test test-all test-needs lint bench gpu-check fuzz clean kernel-needs launcher-needs browser-needs nsys

# $$packages, as root or with a sudo that asks nothing; $$may is empty where that is not possible
INSTALL = if ! command -v apt-get >/dev/null; then may=; \
	elif [ "$$(id -u)" = 0 ]; then may=env; \
	elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then may=sudo; else may=; fi; \
	if [ -n "$$may" ]; then $$may apt-get update -q && $$may apt-get install -qy $$packages || may=; fi

# the kernel needs a compiler and the headers of libjpeg-turbo, Highway and Python; without them everything works, slower
kernel-needs:
	@python=$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))'); \
	if [ -f $(JPEGLIB) ] && [ -f $(HIGHWAY) ] && [ -f "$$python/Python.h" ] && command -v c++ >/dev/null; then exit 0; fi; \
	packages="g++ libjpeg-dev libhwy-dev python3-dev"; $(INSTALL); \
	if [ -z "$$may" ]; then echo "The kernel will not be built: install g++ and the headers of libjpeg-turbo, Highway and Python" \
	    "(Debian, Ubuntu: apt-get install $$packages), then: make clean. Going on with Pillow."; fi

# one test starts its ranks with mpirun
launcher-needs:
	@if command -v mpirun >/dev/null; then exit 0; fi; \
	packages=openmpi-bin; $(INSTALL); \
	if [ -z "$$may" ]; then echo "The test of mpirun will be skipped: install Open MPI" \
	    "(Debian, Ubuntu: apt-get install $$packages)."; fi

# the pages of `fastfeed analyze --html` are looked at in a browser without a screen
browser-needs:
	@for browser in chromium chromium-browser google-chrome; do if command -v $$browser >/dev/null; then exit 0; fi; done; \
	packages=chromium; $(INSTALL); \
	if [ -z "$$may" ]; then echo "The tests of report pages in a browser will be skipped: install Chromium" \
	    "(Debian: apt-get install $$packages)."; fi

# the runner's tests with a real nsys run where there is one: NSYS, on PATH, in its usual places, or here. 170 MB, NVIDIA's
# licence, Debian or Ubuntu, nothing is installed; not part of make test or test-all
nsys:
	tests/helpers/profiler/fetch_nsys.sh build/nsys

demo: $(VENV)/.demo
	$(BIN)/fastfeed demo $(if $(DATA),--data $(DATA)) $(ARGS)

test-needs: $(VENV)/.dev launcher-needs browser-needs
	$(if $(strip $(TORCH)),$(PIP) install -q $(TORCH) accelerate lightning)

test: test-needs
	$(PYTEST) -m "not slow" $(ARGS)

test-all: test-needs
	$(PYTEST) $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	for bench in benchmarks/bench_*.py; do $(BIN)/python $$bench $(ARGS) || exit 1; done

# For a machine with packages of its own and no registry: no virtual environment is made, nothing is fetched. A fastfeed
# that is installed with its kernel is used; else this one is built, if the build tools are there.
GPU_PYTHON ?= python3
GPU_SITE := build/gpu-site
GPU_PIP = $(GPU_PYTHON) -m pip --disable-pip-version-check install -q --no-index --no-build-isolation --no-deps --no-compile
gpu-check:
	@rm -rf $(GPU_SITE); \
	if $(GPU_PYTHON) -c 'import sys; sys.path.pop(0); import fastfeed._native' 2>/dev/null; then \
	    echo "fastfeed is installed with its JPEG kernel, which is used."; \
	elif $(GPU_PIP) --target $(GPU_SITE) . && ls $(GPU_SITE)/fastfeed/_native* >/dev/null; then \
	    echo "fastfeed was built into $(GPU_SITE), with its JPEG kernel."; \
	else echo "The JPEG kernel was not built: going on with Pillow, which is slower, in all that says cpu kernel."; fi
	PYTHONPATH=$(GPU_SITE)$(if $(PYTHONPATH),:$(PYTHONPATH)) $(GPU_PYTHON) -m benchmarks.gpu_check $(ARGS)

# the kernel under fuzzers, files and programs, SECONDS each; tests/fuzz/README.md has more of the kind
SECONDS ?= 1200
fuzz:
	tests/fuzz/run.sh fuzz $(SECONDS)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("fastfeed needs Python 3.10 or newer, this is " + sys.version.split()[0] + \
	    "; try: make PYTHON=python3.11") if sys.version_info < (3, 10) else None'
	$(PYTHON) -m venv $(VENV)

KERNEL := $(wildcard fastfeed/native/*)

$(VENV)/.demo: pyproject.toml $(KERNEL) | $(VENV)/bin/python kernel-needs
	@echo "Installing fastfeed, Keras and TensorFlow into $(VENV); the first time takes a few minutes."
	$(PIP) install -q -e '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(KERNEL) | $(VENV)/bin/python kernel-needs
	@echo "Installing what the tests need (TensorFlow, JAX, DALI) into $(VENV); the first time takes a few minutes."
	$(PIP) install -q -e '.[dev]'
	@# reads MDS shards in the tests; what it depends on is PyTorch and the clients of every cloud, for other things
	$(PIP) install -q --no-deps 'mosaicml-streaming>=0.13' catalogue
	@touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) .fastfeed-demo build dist
