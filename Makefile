# Everything a developer types. The virtual environment is made on first use.

PYTHON ?= python3
# Tests run beside each other; each may start a compiler.
JOBS ?= $(shell nproc)
# Of make soak.
PROGRAMS ?= 300

VENV := .venv
STAMP := $(VENV)/.installed
BASE := $(VENV)/.base
TRAINS := $(VENV)/.trains
DOCS := $(VENV)/.docs
RUN := $(VENV)/bin/python
PYTEST := $(RUN) -m pytest -n $(JOBS) --dist worksteal

CHECK := $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
# What cannot be beside the rest (pyproject.toml says why).
TCL_EXTRA := import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['tcl'])

.PHONY: setup demo check test test-full coverage soak bench site site-version release lint clean

setup: $(STAMP)

# Again whenever the dependencies may have changed.
$(STAMP): pyproject.toml
	@$(CHECK)
	@echo "Installing into $(VENV), once: a minute or two if pip has it in its cache, else as long as it takes to load ..."
	@$(PYTHON) -m venv $(VENV)
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@$(PYTHON) -m venv $(VENV)/tclint
	@$(VENV)/tclint/bin/python -m pip install --quiet --disable-pip-version-check $$($(RUN) -c "$(TCL_EXTRA)")
	@touch $@

# PyTorch and Jupyter, without which the tests of what trains and of notebooks are skipped.
$(TRAINS): $(STAMP)
	@echo "Installing PyTorch and Jupyter into $(VENV), once ..."
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[train,notebooks]'
	@touch $@

# MkDocs, and what goes with it.
$(DOCS): $(STAMP)
	@echo "Installing MkDocs into $(VENV), once ..."
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

# What a user needs, without what tests do; Python compiles of it what is used.
$(BASE): pyproject.toml
	@$(CHECK)
	@echo "Installing what the demo needs into $(VENV), once: seconds if pip has it in its cache, else as long as 500 MB take ..."
	@$(PYTHON) -m venv $(VENV)
	@$(RUN) -m pip install --quiet --no-compile --disable-pip-version-check --editable .
	@touch $@

# An NPU is built, simulated, and recognises digits.
demo: $(if $(wildcard $(STAMP)),$(STAMP),$(BASE))
	@$(RUN) -m gen demo

# While working: a minute or two. Lint, and the tests of compiler, simulators and components that start no tool.
check: lint
	@$(PYTEST) --check

# Before a change goes in.
test: $(STAMP)
	@$(PYTEST)

# Also the tests marked `full` and those that need PyTorch or Jupyter, with a new seed: hours. A run that is stopped, or
# has failures, goes on where it was, for the same sources. With COVERAGE=1 all of them, as `coverage` does.
test-full: $(TRAINS)
	@NPUGEN_SEED=$${NPUGEN_SEED:-random} $(PYTEST) --full $(if $(COVERAGE),$(MEASURED),--resume)

MEASURED = --cov --cov-report=term:skip-covered --cov-report=html

# Which lines of the Python code the tests of `make test` reach: the table, and build/coverage with the pages. Benches
# and commands in processes of their own are not counted.
coverage: $(STAMP)
	@$(PYTEST) $(MEASURED)

# Random programs on the Verilog beside the functional simulator: goes on where an earlier run of the same sources ended.
soak: $(STAMP)
	@$(RUN) -m tests.soak --programs $(PROGRAMS)

# The figures of the README, measured again.
bench: $(STAMP)
	@$(RUN) -m gen bench

# The documentation site, in build/site; fails for a page that is in no menu and a link that leads nowhere.
site: $(DOCS)
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict
	@echo "build/site/index.html: open it in a browser"

# The site as a version of its own on the branch `gh-pages`, with a chooser of versions: that of pyproject.toml, or
# VERSION=dev. Nothing is pushed; WHERE is the branch.
WHERE ?= gh-pages
site-version: $(DOCS)
	@NO_MKDOCS_2_WARNING=1 PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/mike deploy --branch $(WHERE) --update-aliases \
		$${VERSION:-$$($(RUN) -c 'from npugen import __version__ as v; print(v.rpartition(".")[0], "latest")')}
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mike set-default --branch $(WHERE) --allow-undefined latest
	@echo "on the branch $(WHERE): look at it with '$(VENV)/bin/mike serve --branch $(WHERE)', publish it with 'git push'"

# Wheel, sources, notes and digests in build/release, of the commit at hand once it passes; nothing is published.
release: lint test
	@$(RUN) -m tests.release

lint: $(STAMP)
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(RUN) -m tests.lint

clean:
	rm -rf build
