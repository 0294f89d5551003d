# make demo          runs the main job end to end: photographs -> decode and augmentation -> Keras fit
# make test          runs the tests not marked slow; takes eight to ten minutes on two cores
# make test-ci       runs what CI runs: all tests but those marked nightly
# make test-nightly  runs those marked nightly, as CI does once a day
# make test-all      runs all tests
# make test-lowest   runs tests with the oldest dependencies
# make lint          checks style, types, import rules and words
# make bench         runs the benchmarks
# make wheel         builds a wheel that installs without a compiler; for arm64: ARCH=aarch64
# make wheel-test    installs and tries that wheel where there is no compiler
# make sdist         builds the source archive
# make docs          builds the site into build/docs
# make release-check checks version and changelog, builds the site, the archive and wheels, and tries them
# make release-tag   tags this commit as the version, after the same check of version and changelog
# make gpu-kit       packs everything that needs a GPU into files to copy to a GPU machine: benchmarks/gpu_check/README.md
# make gpu-kit-dry   runs the same steps here, on the CPU, with tiny inputs
# make gpu-check     runs the same steps on this machine, with the packages it has
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
ARGS ?=
TORCH ?= # e.g. torch==2.13.0: also test PyTorch, Keras on it, Accelerate, Albumentations, Lightning, torchdata, torchft and Transformers
WORKERS ?= 3 # processes that tests are spread over, by file: a fourth of their time is waiting, on two cores
PYTEST = $(BIN)/python -m pytest $(if $(filter-out 1,$(strip $(WORKERS))),-n $(WORKERS) --dist loadfile --no-loadscope-reorder)
# tests start hundreds of processes, each of which would compile the package again
unexport PYTHONDONTWRITEBYTECODE
JPEGLIB ?= /usr/include/jpeglib.h
HIGHWAY ?= /usr/include/hwy/highway.h
WEBPLIB ?= /usr/include/webp/decode.h # optional: without it Pillow decodes WebP

.PHONY: release-check release-tag docs demo test test-ci test-nightly test-all test-needs lint bench wheel wheel-test same-bytes sdist reproducible test-lowest test-libjpeg gpu-kit gpu-kit-dry gpu-check fuzz clean kernel-needs nasm-needs launcher-needs browser-needs nsys

# $$packages, as root or with a sudo that asks nothing; $$may is empty where that is not possible
INSTALL = if ! command -v apt-get >/dev/null; then may=; \
	elif [ "$$(id -u)" = 0 ]; then may=env; \
	elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then may=sudo; else may=; fi; \
	if [ -n "$$may" ]; then $$may apt-get update -q && $$may apt-get install -qy $$packages || may=; fi

# the native extension needs a compiler and Python's headers; with those of libjpeg-turbo, libwebp and Highway it is built faster
kernel-needs:
	@python=$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))'); \
	has() { [ -f $(JPEGLIB) ] && [ -f $(HIGHWAY) ] && [ -f "$$python/Python.h" ] && command -v c++ >/dev/null; }; \
	if has && [ -f $(WEBPLIB) ]; then exit 0; fi; \
	packages="g++ libjpeg-dev libwebp-dev libhwy-dev python3-dev"; $(INSTALL); \
	if [ -z "$$may" ] && has; then echo "WebP will be decoded by Pillow, which is slower: install libwebp's headers" \
	    "(Debian, Ubuntu: apt-get install libwebp-dev), then: make clean."; \
	elif [ -z "$$may" ]; then echo "libjpeg-turbo and Highway will be built from archives, if there is a compiler: install g++ and" \
	    "their headers (Debian, Ubuntu: apt-get install $$packages), then: make clean."; fi

nasm-needs:
	@if command -v nasm >/dev/null; then exit 0; fi; \
	packages=nasm; $(INSTALL); \
	if [ -z "$$may" ]; then echo "libjpeg-turbo needs NASM for its SIMD code (Debian, Ubuntu: apt-get install nasm)." >&2; exit 1; fi

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
# licence, Debian or Ubuntu, nothing is installed; not part of make test or test-ci
nsys:
	tests/helpers/profiler/fetch_nsys.sh build/nsys

demo: $(VENV)/.demo
	$(BIN)/fastfeed demo $(if $(DATA),--data $(DATA)) $(ARGS)

test-needs: $(VENV)/.dev launcher-needs browser-needs
	$(if $(strip $(TORCH)),$(PIP) install -q $(TORCH) accelerate albumentations lightning torchdata torchft transformers)

test: test-needs
	$(PYTEST) -m "not slow and not nightly" $(ARGS)

test-ci: test-needs build/docs-env/.docs
	$(PYTEST) -m "not nightly" $(ARGS)

test-nightly: test-needs
	$(PYTEST) -m nightly $(ARGS)

test-all: test-needs build/docs-env/.docs
	$(PYTEST) $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/helpers/words.py
	$(BIN)/pyright
	$(BIN)/lint-imports

# the site in build/docs, which opens from the disk; its environment has no kernel, since nothing is decoded
DOCS := build/docs-env
docs: $(DOCS)/.docs
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict $(ARGS)
	$(DOCS)/bin/python docs/site/check.py build/docs

$(DOCS)/.docs: pyproject.toml
	test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip --disable-pip-version-check install -q -C wheel.cmake=false -e '.[docs]'
	@touch $@

bench: $(VENV)/.dev
	for bench in benchmarks/bench_*.py; do $(BIN)/python $$bench $(ARGS) || exit 1; done

# docs/installing.md; LIBJPEG_SOURCE, LIBWEBP_SOURCE and HIGHWAY_SOURCE name archives, which are else downloaded. Those of PYTHONS that are here
ARCH ?= $(shell uname -m)
PYTHONS ?= python3.10 python3.11 python3.12
export LIBJPEG_SOURCE LIBJPEG_SHA256 LIBWEBP_SOURCE LIBWEBP_SHA256 HIGHWAY_SOURCE HIGHWAY_SHA256
wheel: nasm-needs
	$(PYTHON) packaging/$(if $(filter $(shell uname -m),$(ARCH)),wheels.py --python $(PYTHONS),$(ARCH).py) $(ARGS)

wheel-test:
	$(PYTHON) packaging/clean_room.py $(ARGS)

# pixels of this tree's build and of the wheel in dist/ (or WHEEL), of every kind of file and of the folders PHOTOS
same-bytes: $(VENV)/.dev
	$(BIN)/python packaging/same_bytes.py $(WHEEL) --photos $(PHOTOS)

# For a machine with packages of its own and no registry: no virtual environment is made, nothing is fetched. A fastfeed
# that is installed with its kernel is used; else this one is built, if the build tools are there.
GPU_PYTHON ?= python3
GPU_SITE := build/gpu-site
GPU_PIP = $(GPU_PYTHON) -m pip --disable-pip-version-check install -q --no-index --no-build-isolation --no-deps --no-compile
gpu-check:
	@rm -rf $(GPU_SITE); \
	if $(GPU_PYTHON) -c 'import sys; sys.path.pop(0); import fastfeed._native' 2>/dev/null; then \
	    echo "fastfeed is installed with its native extension, which is used."; \
	elif $(GPU_PIP) --target $(GPU_SITE) . && ls $(GPU_SITE)/fastfeed/_native* >/dev/null; then \
	    echo "fastfeed was built into $(GPU_SITE), with its native extension."; \
	else echo "The native extension was not built: continuing with Pillow, which is slower, in every row labeled 'cpu kernel'."; fi
	$(GPU_PYTHON) -m benchmarks.gpu_check.kit.pack --code-alone --out build/gpu-check
	PYTHONPATH=$(CURDIR)/$(GPU_SITE)$(if $(PYTHONPATH),:$(PYTHONPATH)) $(GPU_PYTHON) build/gpu-check/run.py $(ARGS)

# its wheel wants Python 3.12 or newer, a compiler and NASM; ARGS=--without-kernel sends the source alone
gpu-kit:
	@$(MAKE) -s nasm-needs || true
	$(PYTHON) -m benchmarks.gpu_check.kit.pack $(ARGS)

# with PyTorch; and where no CUDA toolkit is, the headers that the program for the JPEG engine is compiled with
gpu-kit-dry: $(VENV)/.dev
	$(PIP) install -q $(or $(strip $(TORCH)),torch==2.13.0)
	@test -f /usr/local/cuda/include/crt/host_defines.h || $(PIP) install -q nvidia-cuda-runtime nvidia-cuda-crt || true
	$(BIN)/python -m benchmarks.gpu_check.kit.dry $(ARGS)

test-lowest:
	$(PYTHON) packaging/clean_room.py --lowest $(ARGS)

sdist: $(VENV)/bin/python
	$(PIP) install -q build
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(BIN)/python -m build -q --sdist --outdir dist

# all that a release needs, before its tag: fastfeed/version.py and CHANGELOG.md first
release-check:
	$(PYTHON) packaging/release.py check v$$($(PYTHON) packaging/release.py version)
	$(MAKE) lint docs sdist wheel wheel-test
	$(PYTHON) packaging/clean_room.py dist/fastfeed-$$($(PYTHON) packaging/release.py version).tar.gz

release-tag:
	$(PYTHON) packaging/release.py tag

# the same source gives the same wheel, built in two places
reproducible: nasm-needs
	rm -rf build/again
	$(PYTHON) packaging/wheels.py --python $(firstword $(PYTHONS)) --out build/again/one --work build/wheels
	$(PYTHON) packaging/wheels.py --python $(firstword $(PYTHONS)) --out build/again/two --work build/again/elsewhere/wheels
	for wheel in build/again/one/*.whl; do cmp $$wheel build/again/two/$${wheel##*/} || exit 1; done; sha256sum build/again/one/*.whl

# ARCHIVES: sources of versions of libjpeg-turbo, which take the place of the one that is installed
test-libjpeg: $(VENV)/.dev nasm-needs
	$(BIN)/python packaging/libjpeg_versions.py $(ARCHIVES)

# the native extension under fuzzers and ThreadSanitizer, SECONDS for each of four; tests/fuzz/README.md has more of the kind
SECONDS ?= 1200
fuzz:
	tests/fuzz/run.sh fuzz $(SECONDS)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("fastfeed needs Python 3.10 or newer, this is " + sys.version.split()[0] + \
	    "; try: make PYTHON=python3.11") if sys.version_info < (3, 10) else None'
	$(PYTHON) -m venv $(VENV)

KERNEL := $(wildcard fastfeed/native/* fastfeed/native/*/*)

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
