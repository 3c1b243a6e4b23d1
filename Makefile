# make quickstart   set up and run the main job on real data
# make test         set up and run the tests
# make faults       set up and run all of the fault harness, for hours
# make mutants     set up and plant small bugs that the tests should notice, for hours (ONLY="core/statistics …")
# make readme       set up, run the quickstart and write its table and chart into README
# make readme-check compare README's table with the quickstart that ran last
# make results      set up and launch every experiment of docs/results.md again, for hours (ONLY=frequency, OUT=DIR)
# make notebook     set up and run docs/tutorial.ipynb, for a few minutes (OUT=FILE keeps its output)
# make check        set up and run the linters and the type checker

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
RUN    := $(BIN)/python -m

# Processes that share the tests, whole files each; one needs about 1 GB.
WORKERS ?= 2

# Where there is no NVIDIA GPU (and for `make TORCH=cpu …`) torch comes as its CPU build, a tenth of
# the size: from what pip already knows, else from PyTorch's own index. Where neither has it, torch
# comes from pip's own index like everything else, whose build may be the one of several GB.
TORCH_VERSION ?= 2.13.0
TORCH ?= $(if $(filter Linux,$(shell uname -s)),$(if $(shell command -v nvidia-smi),cuda,cpu),cuda)
TORCH_INDEX := https://download.pytorch.org/whl/cpu

# Python keeps what it compiles, else each process that a launch or a test starts compiles the project
# again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart readme readme-check results notebook test faults mutants gpu wheels check format clean

quickstart: $(VENV)/.installed
	$(RUN) launch experiment=quickstart

readme: quickstart
	$(RUN) perf.readme

readme-check: $(VENV)/.installed
	$(RUN) perf.readme check

results: $(VENV)/.installed
	$(RUN) perf.results $(ONLY) $(if $(OUT),out=$(OUT))

notebook: $(VENV)/.installed
	$(PIP) --editable '.[embedded,notebook]'
	$(RUN) perf.notebook check
	$(RUN) perf.notebook run $(if $(OUT),out=$(OUT))

test: $(VENV)/.installed-dev
	$(RUN) pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

faults: $(VENV)/.installed-dev
	FAULT_KILLS=1000 $(RUN) pytest -m slow tests/faults

mutants: $(VENV)/.installed-dev
	$(PIP) --editable '.[mutants]'
	$(RUN) tests.mutants $(ONLY)

gpu: OUT ?= outputs/gpu
gpu: $(VENV)/.installed-dev
	$(RUN) perf.gpu out=$(OUT)

wheels:
	PYTHON=$(PYTHON) bash perf/wheels.sh .whl

check: $(VENV)/.installed-dev
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	mkdir -p .mypy && ln -sfn .. .mypy/contamination
	$(RUN) mypy

format: $(VENV)/.installed-dev
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
ifeq ($(TORCH),cpu)
	$(PIP) torch==$(TORCH_VERSION)+cpu 2>/dev/null \
	  || $(PIP) --retries 1 --extra-index-url $(TORCH_INDEX) torch==$(TORCH_VERSION)+cpu 2>/dev/null \
	  || echo "No CPU build of torch $(TORCH_VERSION) was found: taking pip's own, which may be several GB."
endif
	$(PIP) --editable '.[embedded]'
	touch $@

# Test tools, linters, and what the builder of benchmarks reads: nothing that the quickstart runs.
$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) --editable '.[embedded,build,dev]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info
