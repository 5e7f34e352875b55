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

# The interpreter of a new .venv: `make setup PYTHON=python3.12`; without it the first of 3.11 and 3.12 that is there.
PYTHON ?=
UV_VERSION := 0.13.7
BIN := .venv/bin
INSTALLED := .venv/.installed
READY := .venv/.ready
KERNELS := .venv/.kernels
CHECKS := .checks
WORKERS := -n 3 --dist loadfile --no-loadscope-reorder
SERVERS := airflow or browser or postgres
BESIDE := --jobs 2 --output-sync=target
CHECK_PARTS := check-types check-deployment check-dags check-code check-layers
# The Dask that the RAPIDS of the extra `cuda` asks for: workers with and without GPUs speak to one scheduler.
DASK := 2026.7.1
LOCK := pip compile --quiet --generate-hashes --no-header --no-annotate --python-version 3.11
COMPILE := $(LOCK) pyproject.toml -c .venv/held.txt --extra dev --output-file requirements.lock

# What is said where no package index answers; a package that is there but has another hash is refused in pip's own words above.
NO_PACKAGES := { echo "make: packages could not be installed (see above)."; \
	echo "make: with a network behind a mirror, name it: PIP_INDEX_URL=URL UV_DEFAULT_INDEX=URL make setup"; \
	echo "make: without one, fetch them elsewhere with: pip download uv==$(UV_VERSION) -r requirements.lock -d wheels"; \
	echo "make: and then: PIP_NO_INDEX=1 PIP_FIND_LINKS=$$PWD/wheels UV_NO_INDEX=1 UV_FIND_LINKS=$$PWD/wheels make setup"; \
	} >&2; exit 1

# A .venv whose interpreter is gone, that was made elsewhere, or that has another Python than asked for, is made anew.
VERSION := -c 'import sys; print(sys.version.split()[0])' 2>/dev/null
FOUND := $(shell grep -qs " $(CURDIR)/.venv$$" .venv/pyvenv.cfg && .venv/bin/python $(VERSION))
WANTED := $(if $(PYTHON),$(shell "$(PYTHON)" $(VERSION) || echo none),$(FOUND))
ifneq "$(wildcard .venv)" ""
ifneq "$(FOUND)" "$(or $(WANTED),none)"
STALE := FORCE
endif
endif

# So are the tools beside it: their scripts name the folder that they were made in.
ifneq "$(wildcard $(CHECKS)/.ready)" ""
ifneq "$(shell $(CHECKS)/bin/python -c '' 2>/dev/null && cat $(CHECKS)/.ready)" "$(CURDIR)"
STALE_CHECKS := FORCE
endif
endif

# Caches go beside the code where the home cannot be written to.
CACHE := $${XDG_CACHE_HOME:-$$HOME/.cache}
WRITABLE := $(shell mkdir -p "$(CACHE)" 2>/dev/null && test -w "$(CACHE)" && echo yes)
ifndef WRITABLE
export XDG_CACHE_HOME := $(CURDIR)/.cache
export XDG_CONFIG_HOME := $(CURDIR)/.cache/config
endif

.PHONY: FORCE help setup demo up test quick explore processors sabotage soak soak-ingest fuzz fuzz-releases topology check docs images wheel bench papers lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(KERNELS) ## create .venv with the locked packages (every target does it when needed)

demo: $(INSTALLED) ## release a fictional census through Airflow and Dask, and show what came out
	@$(BIN)/python -m infra.local.demo

up: $(KERNELS) ## Airflow with its user interface on this machine (PORT=8080); Ctrl-C ends it
	@exec $(BIN)/python -m infra.local.up

# One worker waits for Airflow most of the time, so there is one more than cores. tests/support/work_sharing.py says which
# worker gets which files, and in which order.
test: $(READY) ## all checks, then all tests
	@$(MAKE) $(BESIDE) $(KERNELS) $(CHECK_PARTS)
	$(BIN)/pytest $(WORKERS) --durations=25 -m "not bench" $(ARGS)

quick: $(KERNELS) ## the tests that need no server and take no long time, for the inner loop
	$(BIN)/pytest -q $(WORKERS) -m "not (bench or slow or $(SERVERS))" $(ARGS)

# What `make test` leaves out: it tries the same noise and the same cases each time.
explore: $(KERNELS) ## the laws with fresh noise and fresh cases, for MINUTES=60; says how to replay a failure
	@$(BIN)/python tests/explore.py --minutes $(or $(MINUTES),60)

processors: $(KERNELS) ## the numeric tests as other processors would run them, as a table
	@$(BIN)/python tests/processors.py

# A test that cannot fail proves nothing.
sabotage: $(KERNELS) ## put faults back that the product once had, one by one: each must turn its tests red
	@$(BIN)/python tests/sabotage.py $(ARGS)

# Long and rough, and over within the hour: two parts at once, and nothing begins after 52 minutes. Best as root: strace and
# network namespaces need it. Each part is a file of tests/soak.
SOAK := kills tasks partitions crowd clock disk failover migration chaos
soak: $(KERNELS) ## releases that are killed, cut off and repeated, under the command and Airflow: PART=kills for one part
	$(BIN)/pytest -v -n $(if $(PART),0,2) --dist loadfile --no-loadscope-reorder $(patsubst %,tests/soak/%.py,$(or $(PART),$(SOAK))) $(ARGS)

# A case follows from its number; FIRST goes on where another run ended.
soak-ingest: $(KERNELS) ## hostile records together and alone: CASES=1000000 sources from number FIRST=0 on
	RECORD_WISE_CASES=$${CASES:-1000000} RECORD_WISE_FIRST=$${FIRST:-0} \
		$(BIN)/pytest -v --timeout 0 tests/storage/test_record_wise.py $(ARGS)

# Inputs that failed are kept in tests/fuzz_corpus.
fuzz: $(KERNELS) ## hostile input to everything that reads input: CASES=100000 from number FIRST=0 on; writes a table
	$(BIN)/python tests/fuzz.py --cases $(or $(CASES),100000) --first $(or $(FIRST),0) --table

# A case follows from its number, but for the noise.
fuzz-releases: $(KERNELS) ## whole releases of random tables with random specs: CASES=4000 from number FIRST=0 on; writes a table
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz.py --releases --cases $(or $(CASES),4000) --first $(or $(FIRST),0) --table

# Needs root: every process gets a network namespace of its own.
topology: $(KERNELS) ## one release through PostgreSQL, Airflow's parts and Dask, each on a host of its own
	@exec $(BIN)/python -m infra.topology.run

check: $(READY) ## lint, format, types, layers, the DAGs import, and the deployment files are valid
	@$(MAKE) $(BESIDE) $(CHECK_PARTS)

.PHONY: $(CHECK_PARTS)
check-types:
	$(BIN)/mypy -p synth_core -p infra.handbook -p infra.local -p infra.topology
check-deployment: $(CHECKS)/.ready
	$(CHECKS)/bin/python infra/checks/check.py .
check-dags:
	$(BIN)/python -m infra.local.dag_import
check-code:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
check-layers:
	$(BIN)/lint-imports

docs: $(READY) $(CHECKS)/.ready ## write the generated reference, then build the handbook into site/; warnings are errors
	$(BIN)/python -m infra.handbook.reference
	NO_MKDOCS_2_WARNING=1 $(CHECKS)/bin/mkdocs build --strict --quiet

# Needs root: the stages run in a copy-on-write view of this machine.
images: $(READY) ## run the build stages of the images without a container engine
	scratch=$$(mktemp -d) && $(BIN)/python infra/checks/stages.py . --scratch "$$scratch"

# Needs a package index: nothing of .venv is used but uv.
wheel: $(READY) ## build the wheel and use it in empty environments: the core alone, the command line, Airflow
	scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && $(BIN)/python infra/checks/wheel.py . --scratch "$$scratch"

bench: $(KERNELS) ## run the benchmarks, one after the other; all of them, also after one that failed
	@shopt -s nullglob; failed=""; for script in tests/benchmarks/[a-z]*.py; do \
		echo "== $$script"; OMP_NUM_THREADS=1 PYTHONPATH=.:tests $(BIN)/python "$$script" || failed+=" $$script"; done; \
	if [ -n "$$failed" ]; then echo "make: these benchmarks failed:$$failed" >&2; exit 1; fi

# A run is kept and not made again: `make papers LIMIT=600` does some of them.
papers: $(KERNELS) ## figures and tables of the papers into docs/papers, within LIMIT=7200 seconds of CPU time
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.benchmarks.papers --limit $(or $(LIMIT),7200)

# The images get what the tests ran with, but for the python-dateutil that Flask-AppBuilder asks for.
lock: $(BIN)/uv ## resolve the newest allowed versions into the lock files
	printf "%s\n" "dask==$(DASK)" "uv==$(UV_VERSION)" > .venv/held.txt
	$(BIN)/uv $(COMPILE) --upgrade
	cp requirements.lock .venv/other.lock
	$(BIN)/uv $(subst requirements.lock,.venv/other.lock,$(subst 3.11,3.12,$(COMPILE)))
	cmp requirements.lock .venv/other.lock || { echo "make: Python 3.12 needs other packages than 3.11" >&2; exit 1; }
	grep -E '^[a-zA-Z0-9._-]+==' requirements.lock | grep -v '^python-dateutil==' | sed 's/ .*//' > .venv/tested.txt
	$(BIN)/uv $(LOCK) pyproject.toml -c .venv/tested.txt --extra airflow --extra postgres --extra fab -o docker/airflow.lock
	$(BIN)/uv $(LOCK) pyproject.toml -c .venv/tested.txt --extra cli --extra monitoring -o docker/worker.lock
	$(BIN)/uv $(LOCK) pyproject.toml -c .venv/tested.txt --extra cli --extra monitoring --extra cuda -o docker/worker-cuda.lock
	echo "uv==$(UV_VERSION)" | $(BIN)/uv $(LOCK) - -o docker/uv.lock
	$(BIN)/uv $(LOCK) --upgrade infra/checks/requirements.in -o infra/checks/requirements.lock

# A workspace holds a ledger, and a lost ledger is budget spent without a record: it is removed by hand or not at all.
clean: ## remove the environment, the caches and the Airflow home; workspace/ stays
	rm -rf .venv $(CHECKS) .cache build dist site *.egg-info airflow_home bench-out
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): requirements.lock pyproject.toml $(STALE) | $(BIN)/uv
	@echo "installing the locked packages …"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock || { $(NO_PACKAGES); }; \
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .; \
	echo "installed in $$SECONDS s"
	@touch $@

# Bytecode of all packages: the demo needs that of a quarter of them, and writes it by itself.
$(READY): $(INSTALLED)
	@echo "compiling bytecode …"
	@$(BIN)/python -m compileall -q -j 0 .venv/lib > .venv/compileall.log || true
	@touch $@

# Compiling the kernels keeps one core busy, so that `make test` does it beside its checks.
$(KERNELS): $(READY)
	@$(BIN)/python -m synth_core.warm
	@touch $@

# Tools for files that are not Python; dask-kubernetes is there for its schemas alone, without what it would need to run.
$(CHECKS)/.ready: infra/checks/requirements.lock infra/checks/crds.lock $(STALE_CHECKS) | $(BIN)/uv
	@echo "installing the tools of the checks …"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(CHECKS)
	@$(BIN)/uv pip install --quiet --python $(CHECKS)/bin/python --require-hashes -r infra/checks/requirements.lock || { $(NO_PACKAGES); }
	@$(BIN)/uv pip install --quiet --python $(CHECKS)/bin/python --require-hashes --no-deps -r infra/checks/crds.lock
	@echo "$(CURDIR)" > $@

$(BIN)/uv: $(STALE)
	@python=""; for name in $(if $(PYTHON),"$(PYTHON)",python3.11 python3.12 python3); do \
		if "$$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null; then \
			python="$$name"; break; fi; done; \
	if [ -z "$$python" ]; then \
		echo "make: $(or $(PYTHON),none) is no Python 3.11 or 3.12; install one and name it: make setup PYTHON=python3.12" >&2; \
		exit 1; fi; \
	rm -rf .venv && "$$python" -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION) || { $(NO_PACKAGES); }
