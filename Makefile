# Every target does its own set-up: Python 3.11 to 3.13 with venv, and make, are all that a machine needs.
#   make reproduce          the papers' tables beside our numbers, and results/report.html
#   make reproduce ALL=1    the tables that take minutes too; FULL=1: every output, none sampled
#   make docs               the documentation site, in build/site
#   make test               the tests          make PYTHON=python3.13 VENV=.venv313 test
#   make test-gpu           those that need a GPU; with CUDA 12: make GPU=gpu test-gpu
#   make notebooks          executes the papers' notebooks and compares; UPDATE=1 writes what comes out
#   make sanitize           compute-sanitizer over every kernel, its rows kept
#   make measure            every figure that needs a GPU, on the one at hand: an hour of an H100
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= auto
GPU ?= gpu13
BIN := $(VENV)/bin
# The tests and the sweeps use the cores by processes; threads under them only wait for each other.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
# Processes that compile our modules anew take 1.7 s to start, others 1.1: tests start hundreds.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: reproduce test test-gpu sanitize measure lint types notebooks docs installed bench wheel clean

reproduce: $(VENV)/.has-experiments
	$(BIN)/winolab reproduce $(if $(ALL),--all) $(if $(FULL),--full)

test: $(VENV)/.has-dev
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# Each worker compiles the kernels of its tests; all share the GPU.
test-gpu: $(VENV)/.has-dev $(VENV)/.has-$(GPU)
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) -m gpu tests/gpu

# memcheck, racecheck, initcheck and synccheck over every kernel: a table of what they found
sanitize: $(VENV)/.has-dev $(VENV)/.has-$(GPU)
	$(ONE_THREAD) $(BIN)/python -m tests.gpu.sanitize --rows experiments/results/sanitizer.jsonl

# Cases whose kernels did not change since their rows were measured are left out; STEPS=a,b: some.
measure: $(VENV)/.has-dev $(VENV)/.has-$(GPU)
	$(BIN)/python -m experiments.measure.sitting --only "$(STEPS)"
	$(BIN)/python -m experiments.report.documents

lint: $(VENV)/.has-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.has-dev
	$(BIN)/pyright --pythonpath $(BIN)/python

notebooks: $(VENV)/.has-dev
	$(BIN)/python -m experiments.report.notebooks $(if $(UPDATE),--update)

docs: $(VENV)/.has-docs
	$(BIN)/python -m sphinx -q -W --keep-going -d build/doctrees -b html docs build/site
	@echo "the site is in build/site/index.html"

installed: $(VENV)/.has-dev,docs

bench: $(VENV)/.has-dev
	$(BIN)/python -m experiments.harness.bench

wheel: $(VENV)/.has-dev
	$(BIN)/python -m hatchling build --target wheel

clean:
	rm -rf build dist results .pytest_cache .ruff_cache .hypothesis

# A stamp says that an extra is installed; a change of pyproject.toml installs it again. CI compiles
# those of 14,000 modules that it imports.
comma := ,
$(VENV)/.has-%: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(if $(CI),--no-compile) --editable '.[$*]'
	touch $(addprefix $(VENV)/.has-,$(subst $(comma), ,$*)) $@
