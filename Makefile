# Everything installs into .venv by itself; `make` alone lists what there is.
PYTHON ?= python3
BIN := .venv/bin
SOURCES := gifair_ray actors scenarios analysis

.PHONY: help run test nightly matrix lint types docs clean

help:
	@echo "make run      run the quickstart and show its table"
	@echo "make test     the tests"
	@echo "make nightly  the long searches"
	@echo "make matrix   every fault under every policy: the table of docs/reliability.md"
	@echo "make lint     ruff, and mypy on what ships"
	@echo "make docs     the documentation, in docs/_build/html"
	@echo "make clean    remove what was built or installed here"

# torch first and alone: its pin in constraints.txt takes a build without CUDA.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,docs]'
	touch $@

run: .venv/installed
	$(BIN)/gifair run quickstart

test: .venv/installed
	$(BIN)/pytest -rs -m "not nightly"

nightly: .venv/installed
	HYPOTHESIS_PROFILE=nightly $(BIN)/pytest -rs

matrix: .venv/installed
	cd tests && ../$(BIN)/python matrix.py

lint: types
	$(BIN)/ruff check $(SOURCES) tests docs benchmarks
	$(BIN)/ruff format --check $(SOURCES) tests docs benchmarks

# Type-check what ships: the package as pip lays it out, all of its files.
types: .venv/installed
	rm -rf build
	$(BIN)/python -m pip install --quiet --no-deps --target build/site .
	cd build/site && ../../$(BIN)/mypy --config-file ../../pyproject.toml -p gifair_ray
	@test $$(find build/site/gifair_ray -name '*.py' | wc -l) -eq $$(find $(SOURCES) -name '*.py' | wc -l) \
		|| (echo "some modules do not ship: see packages in pyproject.toml"; exit 1)
	rm -rf build

# Warnings are errors; nothing is fetched.
docs: .venv/installed
	$(BIN)/python -m sphinx --fail-on-warning --keep-going -q -b html docs docs/_build/html

clean:
	rm -rf .venv build docs/_build docs/reference *.egg-info .hypothesis .mypy_cache .ruff_cache .pytest_cache
