# Everything a developer runs. Each target creates the virtual environment when it is missing: .venv, or
# .venv.12 with PYTHON=python3.12.
PYTHON   = python3
VENV    ?= .venv$(subst python3,,$(notdir $(PYTHON)))
INSIDE  := $(VENV)/bin/python
JOBS    ?= 2
SAMPLES ?= 2
# Another program for `make parity`, with the arguments of the one named here.
PARITY  ?= tools/parity

BUILD_DEPS := cmake ninja "onednn-devel-cpu-gomp>=2023.2" "onednn-cpu-gomp>=2023.2" scipy-openblas32 numpy
TEST_DEPS  := pytest pytest-xdist hypothesis pybind11 pillow onnx onnxruntime onnxscript
LINT_DEPS  := ruff==0.17.4 clang-format==23.1.3 mypy==2.4.1

TAG       = $(shell $(INSIDE) -c 'import sys; print(sys.implementation.cache_tag)')
BUILD     = build/$(TAG)
SANITIZE  = build/sanitize-$(TAG)
THREADS   = build/threads-$(TAG)
CONFIGURE = $(VENV)/bin/cmake -G Ninja -DPython_EXECUTABLE=$(abspath $(INSIDE)) -DCMAKE_MAKE_PROGRAM=$(abspath $(VENV)/bin/ninja)
RUN       = PYTHONPATH=$(CURDIR) $(INSIDE)

export NINJA_STATUS = [%f of %t, %e s] $(EMPTY)
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := dev
.PHONY: help bench-packages cuda demo stress-distributed test test-cuda parity onnx-zoo bench docs site check-site notebooks fuzz races lint format sanitize sanitize-threads sweep dev wheel archive aarch64 cuda-wheel matrix clean replay libraries

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | sort | awk -F '\t' '{printf "  %-10s %s\n", $$1, $$2}'

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# Byte code is made when it is first needed, which is seldom.
$(VENV)/.flambeau-deps: | $(VENV)/bin/python
	@echo "installing cmake, ninja, oneDNN, OpenBLAS and NumPy into $(VENV)"
	@$(INSIDE) -m pip install -q --no-compile $(BUILD_DEPS)
	@touch $@

$(VENV)/.flambeau-test: | $(VENV)/bin/python
	@echo "installing pytest into $(VENV)"
	@$(INSIDE) -m pip install -q --no-compile $(TEST_DEPS)
	@touch $@

$(VENV)/.flambeau-lint: | $(VENV)/bin/python
	$(INSIDE) -m pip install -q $(LINT_DEPS)
	@touch $@

$(VENV)/.flambeau-parity: | $(VENV)/bin/python
	$(INSIDE) -c 'import torch' 2>/dev/null || \
	  $(INSIDE) -m pip install -q torch==2.13.0
	$(INSIDE) -m pip install -q mpmath expecttest hypothesis onnx onnxruntime onnxscript
	$(INSIDE) -m pip install -q transformers pillow huggingface_hub safetensors pyyaml
	$(INSIDE) -m pip install -q --no-deps timm
	@touch $@

# In-tree incremental build: libraries land in ./flambeau, so PYTHONPATH=. is all it takes to use them. The checkout's own
# virtual environment is told where they are, and gets the command `flambeau`.
dev: $(VENV)/.flambeau-deps ## build in the tree (the default)
	@test -f $(BUILD)/build.ninja || $(CONFIGURE) -S . -B $(BUILD) -DFLAMBEAU_OUTPUT_DIR=$(CURDIR)/flambeau
	@$(VENV)/bin/cmake --build $(BUILD) -j $(JOBS)
ifneq ($(filter .venv%,$(VENV)),)
	@$(INSIDE) tools/link.py
endif

test: dev $(VENV)/.flambeau-test ## run the tests
	$(RUN) -m pytest -q -n $(JOBS) tests

# The CUDA library, on any machine with nvcc; where there is a driver `make dev` builds it too.
cuda: dev ## build the CUDA library too
	@$(VENV)/bin/cmake -DFLAMBEAU_CUDA=ON $(BUILD)
	@$(VENV)/bin/cmake --build $(BUILD) -j $(JOBS)

# What needs a device, then the tests of operators, layers, derivatives, capture and the compiler with their tensors there.
test-cuda: cuda $(VENV)/.flambeau-test ## run what needs a CUDA device
	$(RUN) -m pytest -q tests/cuda
	FLAMBEAU_TEST_DEVICE=cuda $(RUN) -m pytest -q -n $(JOBS) tests/ops tests/nn tests/autograd tests/dynamo tests/inductor

# Trains a small GPT on Shakespeare's sonnets; the curve is saved as build/char_gpt.png.
demo: dev ## train a small GPT
	$(RUN) examples/char_gpt.py

# Operators beside PyTorch's, then whole workloads, as a table, the chart and the numbers of the README. About 20 minutes
# on two cores that do nothing else.
bench: SHELL = /bin/bash -o pipefail
bench: dev $(VENV)/.flambeau-parity ## measure beside PyTorch: operators, then whole workloads
	$(RUN) benchmarks/run.py $(ARGS)
	$(RUN) benchmarks/compare.py --cold --seconds 3 --json benchmarks/results/compiled.json | tee benchmarks/results/compiled.txt
	$(RUN) tools/chart.py

# Packages beside AOTInductor, TorchScript and onnxruntime, new sizes of compiled functions, and servers under load. Wants the
# machine for itself once the models are prepared.
bench-packages: dev $(VENV)/.flambeau-parity ## measure packages beside others, and servers
	$(RUN) benchmarks/packages.py prepare build/packages
	$(RUN) benchmarks/packages.py measure build/packages --record benchmarks/results/packages.txt
	$(RUN) benchmarks/new_sizes.py --record benchmarks/results/new_sizes.txt
	$(RUN) benchmarks/serving.py --record benchmarks/results/serving.txt

parity: dev $(VENV)/.flambeau-test $(VENV)/.flambeau-parity ## compare operators and programs with PyTorch
	$(RUN) tools/check_parity.py --harness $(PARITY) --samples $(SAMPLES) --jobs $(JOBS)
	$(RUN) -m pytest -q -n $(JOBS) tests/parity

# Models of timm and transformers as ONNX, compared with onnxruntime at two sizes; docs/notes/onnx-zoo.md has the results.
onnx-zoo: dev $(VENV)/.flambeau-parity ## export a zoo of models to ONNX and compare
	$(RUN) -m flambeau run tools/onnx_zoo.py --table docs/notes/onnx-zoo.md $(ARGS)

# docs/operators.md from the op records, docs/graph-breaks.md from the kinds of breaks.
docs: | $(VENV)/bin/python ## write the generated pages of docs/
	$(INSIDE) tools/document.py
	$(INSIDE) tools/document_breaks.py

$(VENV)/.flambeau-site: | $(VENV)/bin/python
	$(INSIDE) -m pip install -q zensical==0.0.73 playwright
	@touch $@

# Pages, notebooks and the reference of the API, as HTML in build/site/html.
site: dev $(VENV)/.flambeau-site ## build the site into build/site/html
	$(RUN) tools/site.py

# Links, search and the width of pages, in Chromium; screenshots go to build/site/screenshots.
check-site: site ## look at the site in a browser
	$(RUN) tools/check_site.py

notebooks: dev ## run the notebooks of the documentation and keep what they print
	$(RUN) tools/notebooks.py

lint: $(VENV)/.flambeau-lint ## check style and types
	$(INSIDE) tools/lint.py

format: $(VENV)/.flambeau-lint ## mend style
	$(INSIDE) tools/lint.py --fix

stress-distributed: dev ## 1,000 random schedules of collectives and 200 random kills, recorded in benchmarks/results
	$(VENV)/bin/python tests/distributed/stress/run.py schedules 1000 --record benchmarks/results/distributed_stress.txt
	$(VENV)/bin/python tests/distributed/stress/run.py kills 200 --record benchmarks/results/distributed_stress.txt

sweep: dev $(VENV)/.flambeau-parity ## every pointwise function over the range of each dtype, recorded in benchmarks/results
	$(RUN) tests/parity/value_sweep.py --record benchmarks/results/value_sweep.txt

# A second package folder holds the sanitized libraries beside copies of the Python files.
sanitize: $(VENV)/.flambeau-deps $(VENV)/.flambeau-test ## run the tests of native code under ASan and UBSan
	@mkdir -p $(SANITIZE)/package/flambeau
	@test -f $(SANITIZE)/build.ninja || $(CONFIGURE) -S . -B $(SANITIZE) -DFLAMBEAU_SANITIZE=ON \
	  -DFLAMBEAU_KERNEL_ARCHS=x86-64-v3 -DFLAMBEAU_OUTPUT_DIR=$(abspath $(SANITIZE))/package/flambeau
	@$(VENV)/bin/cmake --build $(SANITIZE) -j $(JOBS)
	$(INSIDE) tools/run_sanitized.py $(SANITIZE)

# Races between threads: everything but the loops of kernels is instrumented.
sanitize-threads: $(VENV)/.flambeau-deps $(VENV)/.flambeau-test ## run the tests that start threads under TSan
	@mkdir -p $(THREADS)/package/flambeau
	@test -f $(THREADS)/build.ninja || $(CONFIGURE) -S . -B $(THREADS) -DFLAMBEAU_SANITIZE=thread \
	  -DFLAMBEAU_OUTPUT_DIR=$(abspath $(THREADS))/package/flambeau
	@$(VENV)/bin/cmake --build $(THREADS) -j $(JOBS)
	$(INSIDE) tools/run_sanitized.py --threads $(THREADS)

# The parts of the runtime that packages need are built with the sanitizer, and linked with the kernels of this build.
fuzz: dev ## load 10,000 damaged packages under ASan
	$(RUN) tools/sanitize_runtime.py address 10000 $(or $(SEED),1) --jobs $(JOBS)

races: dev ## run a model on many threads under ThreadSanitizer
	$(RUN) tools/sanitize_runtime.py thread --jobs $(JOBS)

# For another Python: make wheel PYTHON=python3.12. What the build needs is in pyproject.toml.
wheel: | $(VENV)/bin/python ## build a wheel into dist/
	@echo "building a wheel for all processors into dist, which takes some minutes"
	@$(INSIDE) -m pip wheel -q . --no-deps -w dist
	@$(INSIDE) -m pip install -q auditwheel && $(INSIDE) -m auditwheel show dist/flambeau-*-$(subst cpython-,cp,$(TAG))-*.whl

# What programs without Python are built with, for all processors: dist/flambeau-VERSION-linux-x86_64.tar.gz.
archive: $(VENV)/.flambeau-deps ## pack headers and libraries for C and C++ into dist/
	@test -f build/archive/build.ninja || $(CONFIGURE) -S . -B build/archive -DFLAMBEAU_CUDA=OFF '-DFLAMBEAU_KERNEL_ARCHS=x86-64-v3;x86-64-v4'
	@$(VENV)/bin/cmake --build build/archive -j $(JOBS) --target flambeau flambeau_static
	$(INSIDE) tools/make_archive.py --build build/archive

# The runtime for aarch64, by a cross compiler (Debian: g++-aarch64-linux-gnu), in build/aarch64.
CROSS := -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=$(or $(FLAMBEAU_CXX_AARCH64),aarch64-linux-gnu-g++)
aarch64: $(VENV)/.flambeau-deps ## cross-compile the runtime for aarch64
	@test -f build/aarch64/build.ninja || $(CONFIGURE) -S . -B build/aarch64 $(CROSS) -DFLAMBEAU_CUDA=OFF
	@$(VENV)/bin/cmake --build build/aarch64 -j $(JOBS)

cuda-wheel: cuda ## pack the CUDA library into a wheel of its own, into dist/
	$(RUN) tools/cuda_wheel.py

# Wheels for all Pythons that are found, and the corpus of captured programs with each of them installed.
matrix: ## build and test wheels for all Pythons that are found
	$(PYTHON) tools/matrix.py $(PYTHONS) -- $(or $(ARGS),-n $(JOBS) tests/dynamo)

# Libraries of others from PyPI, run on flambeau; docs/libraries.md has the results.
libraries: dev ## try third-party libraries
	$(INSIDE) tools/libraries.py --record docs/libraries.md $(ARGS)

# Which generated kernels differ from those of another revision: make replay BASE=main ARGS=--diff
BASE ?= HEAD
replay: dev ## say which generated kernels differ from those of another revision
	$(RUN) tools/replay.py $(BASE) $(ARGS)

clean: ## remove what was built
	rm -rf build dist flambeau/*.so
	find flambeau tests tools -name __pycache__ -prune -exec rm -rf {} +
