# Every target makes .venv if it is missing or older than pyproject.toml or constraints.txt, then does its work. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TESTS ?= tests
# two processes at once: half the tests wait for a server or a child most of the time
PYTEST_ARGS ?= -n 2 --dist worksteal
PROJECT := $(or $(TILEWRIGHT_CONFIG),var/demo/scenes/tilewright.toml)
NEEDS_PROJECT = @[ -f "$(PROJECT)" ] || { echo "make: no $(PROJECT); run 'make demo' first, or name a project: TILEWRIGHT_CONFIG=..." >&2; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help demo demo-all demo-digitization demo-inspections dev dev-postgres test check lint types format mutants bench clean install

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk 'BEGIN {FS = ":.*## "} {printf "  make %-18s %s\n", $$1, $$2}'

demo: $(STAMP) ## the main job: real scenes to tiles through real Dagster runs, with faults put in on purpose, and the proof (under 3 minutes)
	$(BIN)/tilewright demo scenes

demo-all: $(STAMP) ## the demos of all three pipelines, one after another (under 4 minutes)
	$(BIN)/tilewright demo

demo-digitization: $(STAMP) ## masters to access copies and preservation events
	$(BIN)/tilewright demo digitization

demo-inspections: $(STAMP) ## reports to compliance records
	$(BIN)/tilewright demo inspections

dev: $(STAMP) ## the Dagster UI and daemon on 127.0.0.1:3000; on the demo's scenes unless TILEWRIGHT_CONFIG names another project
	$(NEEDS_PROJECT)
	$(BIN)/tilewright --config "$(PROJECT)" dev

dev-postgres: $(STAMP) ## the same with storage, ledger and leases on a PostgreSQL server that is started for it
	$(NEEDS_PROJECT)
	$(BIN)/tilewright --config "$(PROJECT)" dev --postgres

test: $(STAMP) ## all tests; narrow with TESTS=tests/unit, add options with PYTEST_ARGS='-k word'
	$(BIN)/python -m pytest $(PYTEST_ARGS) $(TESTS)

check: lint types $(STAMP) ## what CI asks beside the tests: lint, types, architecture, and that Dagster loads the definitions
	$(BIN)/python -m pytest -q tests/unit/test_architecture.py
	TILEWRIGHT_CONFIG=$(CURDIR)/tilewright.toml $(BIN)/dagster definitions validate -w workspace.yaml

lint: $(STAMP) ## ruff: rules and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP) ## let ruff lay out the code and mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP) ## mypy --strict over the three floors
	$(BIN)/mypy

mutants: $(STAMP) ## break a line for each invariant, in copies, and prove that a test notices
	$(BIN)/python -m tests.mutants

bench: $(STAMP) ## the bounds, as ratios measured in one run
	$(BIN)/python -m benchmarks

clean: ## remove the virtual environment, caches and everything under var/
	rm -rf $(VENV) .venv.lock .tmp_dagster_home_* var build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

install: $(STAMP) ## only make .venv

# The stamp is written last: an installation that was killed is done again. The lock is for two makes at once.
$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "make: no '$(PYTHON)' found; install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $$($(PYTHON) --version) is too old: 3.11 or newer is needed; name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "make: $(PYTHON) comes without venv; install it (Debian: python3-venv)" >&2; exit 1; }
	@set -e; if command -v flock >/dev/null; then exec 9>.venv.lock; flock 9; fi; \
	if [ -f $@ ] && [ ! pyproject.toml -nt $@ ] && [ ! constraints.txt -nt $@ ]; then exit 0; fi; \
	echo "Installing into $(VENV) (a minute or two the first time)"; \
	$(PYTHON) -m venv $(VENV); \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,lint]' -c constraints.txt; \
	touch $@
