# make repro   set up, then run the whole pipeline on the built-in default
# make test    the test suite that CI runs
# make ranks   training on two CPU ranks, under torchrun and DeepSpeed, against one process (minutes)
# make check   the pre-commit set: ruff (lint, format) and mypy (strict)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# DVC runs `python -m stages.<name>`: the environment's python must come first.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PYTHONHASHSEED := 0

.PHONY: setup repro test ranks check schemas docs clean

setup: $(VENV)/.installed

# torch comes from the plain registry: asked for exactly and first, so that nothing pulls another build of it.
$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=24"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable ".[dev]"
	touch $@

repro: setup
	@start=$$(date +%s); dvc repro && python -m astra.report --summary --since $$start

# both cores; whole files, the long ones first (tests/conftest.py)
test: setup
	pytest -n 2 --dist loadfile --no-loadscope-reorder

# DeepSpeed's CPU operator is compiled once, which takes a minute or two
ranks: setup
	pytest -m slow tests/training/test_launch.py tests/training/test_launched.py tests/training/test_rl_ranks.py

check: setup
	pre-commit run --all-files --show-diff-on-failure

schemas: setup
	python -m astra.records.schemas

# docs/reference, from the typed models; dvc.yaml, from the stages' contracts
docs: setup
	python -m tests.dvc_yaml
	python -m tests.reference

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build *.egg-info
