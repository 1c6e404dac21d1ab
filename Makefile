# Every target sets up what it needs by itself. `make help` lists them.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MADE := $(VENV)/.made
READY := $(VENV)/.ready
RUNS := $(VENV)/.runs
# A dot every two seconds, until the command that follows has ended.
DOTS = while sleep 2; do printf .; done & dots=$$!; trap "kill $$dots; echo" EXIT;
INSTALL = $(BIN)/python tests/packages.py
COMPILED := $(VENV)/.compiled
DOCS_READY := $(VENV)/.docs-ready
# More workers than two cores have: tests wait more than they work (a quarter of a core each), though
# they start processes that work too. tests/conftest.py orders the files.
TOGETHER := --dist loadfile --no-loadscope-reorder
FULL_AT_MOST := 6h
# Every worker, server and command of the tests reads our code again; compiled once, it costs half.
export PYTHONDONTWRITEBYTECODE :=
# What is set up and checked before the tests does not wait for one another.
MAKEFLAGS += -j4
# Proxies for the tests of deploy/, a clock that jumps, a chat server, and the bench's load of gets.
# RUNLEVEL=1 keeps them from being started.
DEBIAN := nginx-light haproxy libfaketime ngircd pgbouncer postgresql wrk
# 100 MB, for the pages alone.
BROWSER := chromium-headless-shell fonts-dejavu-core
.PHONY: help setup demo test test-quick test-full check fmt bench proto lock docs pictures debian browser clean

help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

# uv takes a tenth of pip's time, here and for the foreign clients. Without it pip does the work.
$(MADE):
	@command -v $(PYTHON) >/dev/null || { echo "make: needs $(PYTHON) 3.11 or newer on PATH" >&2; exit 1; }
	@echo "Setting up $(VENV) ..."
	@$(DOTS) $(PYTHON) -m venv $(VENV)
	@$(DOTS) $(BIN)/pip install -q --disable-pip-version-check --no-compile uv==0.13.8 || true
	@$(DOTS) $(INSTALL) pip==26.3
	@touch $@

# What serving and calling agents needs; not what checks and tests need.
$(RUNS): pyproject.toml requirements.lock | $(MADE)
	@echo "Installing what agents need to run ..."
	@$(DOTS) $(INSTALL) -c requirements.lock -e '.[grpc]'
	@touch $@

# What is imported is compiled then, which is less than everything.
$(READY): pyproject.toml requirements.lock | $(MADE)
	@echo "Installing what the checks and tests need, too ..."
	@$(DOTS) $(INSTALL) -r requirements.lock
	@$(INSTALL) --no-deps -e .
	@touch $@

# The first collection compiles the tests and all they import; many workers would each do it anew.
$(COMPILED): $(READY)
	@$(BIN)/python -m pytest -q --collect-only >$@ || { cat $@; rm $@; exit 1; }

setup: $(READY) ## Make the virtual environment (the other targets do it by themselves)

demo: $(RUNS) ## Start agents in every dialect and a gateway, and show them talking
	@$(BIN)/dragoman demo

test: check $(COMPILED) .peers/.ready debian ## Check, then all tests, with small counts
	@$(BIN)/python -m pytest -q -n 9 $(TOGETHER) $(ARGS)

# Each worker collects all tests, five seconds of work; what waits long is left out.
test-quick: $(COMPILED) ## What to run before each commit: all tests that need no other process, with the smallest counts
	@DRAGOMAN_QUICK=1 $(BIN)/python -m pytest -q -n 5 $(TOGETHER) -m "not slow" $(ARGS)

# One after another: many measure. pytest says at the end how long it took, and what took longest.
test-full: check .peers/.ready-all $(DOCS_READY) debian browser ## All tests with the full counts of the issues, and all frameworks
	@echo "All tests with full counts: about two and a half hours on two cores, and at most $(FULL_AT_MOST)."
	@DRAGOMAN_FULL=1 timeout --foreground -s INT -k 5m $(FULL_AT_MOST) $(BIN)/python -m pytest -q -s --timeout=1800 --durations=50 $(ARGS)

check: $(READY) ## Format, lint, types, import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

fmt: $(READY) ## Format the code and mend what ruff can mend
	@$(BIN)/ruff check --fix-only -q .
	@$(BIN)/ruff format .

proto: $(READY) ## Make the gRPC descriptors anew from proto/*.proto
	@$(BIN)/python proto/generate.py

# `requirements.lock` has no hashes, because pip wants one for every package then, and an editable
# install has none.
lock: $(MADE) ## Write requirements-hashed.lock: requirements.lock with the hashes of every file
	@$(BIN)/uv pip compile -q --no-deps --no-header --no-annotate --generate-hashes requirements.lock -o requirements-hashed.lock

# Only those who build the site need its generator.
$(DOCS_READY): docs/requirements.lock $(READY)
	@$(INSTALL) -r docs/requirements.lock
	@touch $@

docs: $(DOCS_READY) ## Build the site from docs/, with a search and an API reference, in build/docs/html
	@$(BIN)/python docs/site_builder.py build/docs

pictures: $(READY) ## Record the terminal pictures of the docs anew
	@$(BIN)/python docs/pictures.py

debian: ## Install what the tests and the bench use of Debian's, if this machine lets us
	@dpkg -s $(DEBIAN) >/dev/null 2>&1 || \
	{ [ "$$(id -u)" = 0 ] && apt-get update -q && RUNLEVEL=1 apt-get install -y -q --no-install-recommends $(DEBIAN); } >/dev/null 2>&1 || \
	echo "make: not all of $(DEBIAN) could be installed; the tests that need one say so and are skipped"

browser: debian ## Install Debian's browser, in which the tests look at pages, if this machine lets us
	@dpkg -s $(BROWSER) >/dev/null 2>&1 || \
	{ [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -y -q --no-install-recommends $(BROWSER); } >/dev/null 2>&1 || \
	echo "make: $(BROWSER) could not be installed; the tests that need it say so and are skipped"

clean: ## Remove everything the targets made
	rm -rf $(VENV) .peers .mypy_cache .ruff_cache .pytest_cache .hypothesis build

# Needs nothing but uv or pip, so it does not wait for what we need ourselves.
.peers/.ready: tests/interop/peers.py | $(MADE)
	@echo "Setting up the foreign clients of the tests in .peers ..."
	@PYTHONPATH=tests $(BIN)/python -m interop.peers
	@touch $@

.peers/.ready-all: .peers/.ready
	@echo "Setting up the heavy ones (2.9 GB) ..."
	@PYTHONPATH=tests $(BIN)/python -m interop.peers --all
	@touch $@

bench: $(READY) debian ## Measure ours beside the others (ARGS="--quick" for a short look)
	@$(BIN)/python -m bench $(ARGS)
