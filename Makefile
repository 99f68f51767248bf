# `make run` compiles the quickstart model, `make test` runs the tests. Both set everything up first:
# a virtual environment in .venv, and in it the packages of requirements/, pinned by version and hash.

PYTHON ?= python3
UV ?= uv
PIPELINE ?= pipelines/squeezenet.yaml

BIN := .venv/bin
# Hundreds of children import what is tested: where Python is told to keep no bytecode, each compiles it.
# One process more than cores works while another waits: for its turn to time, or for a patience to end.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest --numprocesses $$(expr $$(nproc) + 1) --maxprocesses 4 --dist loadfile --no-loadscope-reorder
PIP := -m pip --disable-pip-version-check install --quiet --no-deps
LOCK := $(UV) pip compile --quiet --universal --fork-strategy fewest --generate-hashes \
	--no-config --custom-compile-command "make lock" --python-version 3.11

.PHONY: help run test test-fast check docs gen lock clean
.DELETE_ON_ERROR:

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

run: .venv/run  ## compile, verify, benchmark and package the quickstart model
	$(BIN)/autopipe run $(PIPELINE)

test: .venv/dev  ## run the tests
	$(PYTEST)

test-fast: .venv/dev  ## run the tests that import no TVM and start no process
	$(PYTEST) --fast

check: .venv/dev docs  ## run the linters, the type checker and the tests, and build the site
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST)

docs: .venv-docs/done  ## build the site of the pages: dist/site/index.html
	@rm -rf dist/site
	.venv-docs/bin/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going --jobs auto \
		--doctree-dir build/doctrees docs dist/site

gen: .venv/dev  ## rewrite the JSON schema, the reference pages, and the pages about faults
	$(BIN)/python -m docs.generate
	$(BIN)/python -m docs.passes_page
	$(BIN)/python -m docs.operators_page
	$(BIN)/python -m tests.faults

lock:  ## refresh requirements/*.txt; needs uv
	$(LOCK) --upgrade --extra onnxruntime -o requirements/run.txt pyproject.toml requirements/build.in
	$(LOCK) --upgrade --extra onnxruntime --extra openblas --extra s3 --extra openvino --extra mnn --extra cluster --extra devices --extra serve --extra dev -c requirements/run.txt -o requirements/dev.txt \
		pyproject.toml requirements/build.in
	$(LOCK) --upgrade -o requirements/docs.txt requirements/docs.in

clean:  ## remove the virtual environment, the caches and the packages, but not the store
	rm -rf .venv .venv-docs dist build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A lock is installed whole (--no-deps) and again only when it changes. In `compat` mode a line of a file leads to this
# folder; otherwise code does that, which takes two thirds of the time in which a Python starts.
.venv/run .venv/dev: .venv/%: requirements/%.txt | .venv/bin/pip
	@echo "installing $< into .venv"
	@$(BIN)/python $(PIP) --require-hashes --only-binary :all: -r $<
	@$(BIN)/python $(PIP) --no-build-isolation --config-settings editable_mode=compat --editable .
	@touch $@

# An environment of its own, so that users and tests do not get the packages of the site.
.venv-docs/done: requirements/docs.txt | .venv/bin/pip
	@echo "installing $< into .venv-docs"
	@.venv/bin/python -m venv --clear .venv-docs
	@.venv-docs/bin/python $(PIP) --require-hashes --only-binary :all: -r $<
	@touch $@

.venv/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
		|| { echo "autopipe needs Python 3.11, 3.12 or 3.13; name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv --clear .venv
