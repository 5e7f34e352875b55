# Everything starts here: `make` alone lists the targets, and each target sets up what it needs.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

# Airflow's processes import thousands of modules, so compiled bytecode must be kept.
unexport PYTHONDONTWRITEBYTECODE
# The environment is always .venv, whatever the caller has activated.
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME

UV_VERSION := 0.13.7
BIN := .venv/bin
READY := .venv/.ready
CHECKS := .checks
LOCK := pip compile --quiet --generate-hashes --no-header --no-annotate --python-version 3.11
COMPILE := $(LOCK) pyproject.toml --extra airflow --extra postgres --extra dev --output-file requirements.lock

.PHONY: help setup demo up test soak topology check docs images bench lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv with the locked packages (every target does it when needed)

demo: $(READY) ## release a fictional census through Airflow and Dask, and show what came out
	@$(BIN)/python -m infra.local.demo

up: $(READY) ## Airflow with its user interface on this machine (PORT=8080); Ctrl-C ends it
	@exec $(BIN)/python -m infra.local.up

# Whole files go to a worker, so that a server is started once; in order, so that the slow ones come first.
test: check ## all checks, then all tests
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not bench" $(ARGS)

# Long and rough: tasks, schedulers and clusters are killed in the middle of releases.
soak: $(READY) ## releases that are killed, repeated and cancelled in the middle, under Airflow
	$(BIN)/pytest -v tests/soak/chaos.py $(ARGS)

# Needs root: every process gets a network namespace of its own.
topology: $(READY) ## one release through PostgreSQL, Airflow's parts and Dask, each on a host of its own
	@exec $(BIN)/python -m infra.topology.run

check: $(READY) $(CHECKS)/.ready ## lint, format, types, layers, the DAGs import, and the deployment files are valid
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p synth_core -p infra.handbook -p infra.local -p infra.topology
	$(BIN)/lint-imports
	$(BIN)/python -m infra.local.dag_import
	$(CHECKS)/bin/python infra/checks/check.py .

docs: $(READY) $(CHECKS)/.ready ## write the generated reference, then build the handbook into site/; warnings are errors
	$(BIN)/python -m infra.handbook.reference
	NO_MKDOCS_2_WARNING=1 $(CHECKS)/bin/mkdocs build --strict --quiet

# Needs root: the stages run in a copy-on-write view of this machine.
images: $(READY) ## run the build stages of the images without a container engine
	scratch=$$(mktemp -d) && $(BIN)/python infra/checks/stages.py . --scratch "$$scratch"

bench: $(READY) ## run the benchmarks, one after the other
	@shopt -s nullglob; for script in tests/benchmarks/[a-z]*.py; do \
		echo "== $$script"; OMP_NUM_THREADS=1 $(BIN)/python "$$script"; done

# The images get what the tests ran with, but for the python-dateutil that Flask-AppBuilder asks for.
lock: $(BIN)/uv ## resolve the newest allowed versions into the lock files
	$(BIN)/uv $(COMPILE) --upgrade
	grep -E '^[a-zA-Z0-9._-]+==' requirements.lock | grep -v '^python-dateutil==' | sed 's/ .*//' > .venv/tested.txt
	$(BIN)/uv $(LOCK) pyproject.toml -c .venv/tested.txt --extra airflow --extra postgres --extra fab -o docker/airflow.lock
	$(BIN)/uv $(LOCK) pyproject.toml -c .venv/tested.txt --extra monitoring -o docker/worker.lock
	$(BIN)/uv $(LOCK) pyproject.toml -c .venv/tested.txt --extra monitoring --extra cuda -o docker/worker-cuda.lock
	echo "uv==$(UV_VERSION)" | $(BIN)/uv $(LOCK) - -o docker/uv.lock
	$(BIN)/uv $(LOCK) --upgrade infra/checks/requirements.in -o infra/checks/requirements.lock

# A workspace holds a ledger, and a lost ledger is budget spent without a record: it is removed by hand or not at all.
clean: ## remove the environment, the caches and the Airflow home; workspace/ stays
	rm -rf .venv $(CHECKS) build dist site *.egg-info airflow_home bench-out
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements.lock pyproject.toml | $(BIN)/uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	$(BIN)/python -m synth_core.warm
	@touch $@

# Tools for files that are not Python; dask-kubernetes is there for its schemas alone, without what it would need to run.
$(CHECKS)/.ready: infra/checks/requirements.lock infra/checks/crds.lock | $(BIN)/uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(CHECKS)
	$(BIN)/uv pip install --quiet --python $(CHECKS)/bin/python --require-hashes -r infra/checks/requirements.lock
	$(BIN)/uv pip install --quiet --python $(CHECKS)/bin/python --require-hashes --no-deps -r infra/checks/crds.lock
	@touch $@

$(BIN)/uv:
	@python=""; for name in python3.11 python3.12 python3; do \
		if "$$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null; then \
			python="$$name"; break; fi; done; \
	if [ -z "$$python" ]; then echo "make: Python 3.11 or 3.12 is needed; install it and try again" >&2; exit 1; fi; \
	"$$python" -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
