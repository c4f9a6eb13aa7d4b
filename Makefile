# Everything sets itself up: a machine with Python 3.11 or newer, make and git is enough.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.set-up
BENCH_STAMP := $(VENV)/.set-up-bench
CACHE := .cache
DYNAMO := $(CACHE)/dynamo
DYNAMO_STAMP := $(DYNAMO)/.set-up
DYNALITE := $(CACHE)/dynalite
DYNALITE_STAMP := $(DYNALITE)/.set-up
LOCKER := $(CACHE)/lock
BARE := $(CACHE)/bare
PIP := -m pip install --quiet --disable-pip-version-check
UV_COMPILE := $(LOCKER)/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	--no-annotate --no-header $(LOCK_ARGS)

SOAK_EXAMPLES ?= 5000
SOAK_READS ?= 100000
SOAK_FAULT_S ?= 300
BENCH_ARGS ?=
PYTEST_ARGS ?=

# Another project's modules have no place in this environment.
unexport PYTHONPATH PYTHONHOME

.DELETE_ON_ERROR:
.PHONY: help setup run check test test-all unit bare image coverage bench soak parts format lock clean

help: ## Say what can be made.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

setup: $(STAMP) ## The virtual environment, from the lock file, with this package in it.

$(STAMP): requirements/dev.txt pyproject.toml tools/make-venv
	@tools/make-venv $(VENV)
	@echo "Installing what requirements/dev.txt locks into $(VENV)"
	@$(BIN)/python $(PIP) --require-hashes --requirement requirements/dev.txt
	@$(BIN)/python $(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(BENCH_STAMP): $(STAMP) requirements/bench.txt
	@echo "Installing what requirements/bench.txt locks into $(VENV)"
	@$(BIN)/python $(PIP) --require-hashes --requirement requirements/bench.txt
	@touch $@

run: setup ## Try it all: a service, two model servers, two relays, and the live list.
	@$(BIN)/poolmuster demo

check: setup ## Lint, format, types and import layers.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# Tests of several instances, which wait for leases more than they work: they run beside all others.
BESIDE = $(wildcard tests/integration/test_peers*.py)
COVERED = --cov=poolmuster.model --cov=poolmuster.registry --cov=poolmuster.replication --cov-branch --cov-report=term-missing:skip-covered \
	--cov-fail-under=100

test: check ## The checks and every test whose parts are here; says what it leaves out.
ifeq ($(PYTEST_ARGS),)
	@mkdir -p .cache
	@$(BIN)/pytest -p no:cacheprovider $(BESIDE) > .cache/beside.log 2>&1 & beside=$$!; \
		$(BIN)/pytest $(COVERED) $(addprefix --ignore=,$(BESIDE)); status=$$?; \
		wait $$beside || status=1; cat .cache/beside.log; exit $$status
else
	$(BIN)/pytest $(COVERED) $(PYTEST_ARGS)
endif

test-all: parts ## Like test, with every part installed; fails if anything is left out.
	@POOLMUSTER_TEST_ALL=1 $(MAKE) --no-print-directory test

unit: setup ## The quick tests alone: a few seconds.
	$(BIN)/pytest tests/unit tests/contract $(PYTEST_ARGS)

bare: $(BARE)/.set-up ## Types and the quick tests once more, without the extras.
	$(BARE)/bin/mypy --cache-dir $(BARE)/.mypy_cache
	$(BARE)/bin/pytest -p no:cacheprovider tests/unit tests/contract $(PYTEST_ARGS)

$(BARE)/.set-up: requirements/dev.txt pyproject.toml tools/make-venv
	@tools/make-venv $(BARE)
	@echo "Installing what requirements/dev.txt locks into $(BARE), but for the extras"
	@$(BARE)/bin/python $(PIP) --require-hashes --requirement requirements/dev.txt
	@$(BARE)/bin/python -m pip uninstall --quiet --yes botocore
	@$(BARE)/bin/python $(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

image: ## Build the image and run it once; as root, with buildah, podman, runc and debootstrap.
	@tools/try-image

coverage: setup ## Lines and branches that no test runs, of everything.
	$(BIN)/pytest --cov=poolmuster --cov-branch --cov-report=term-missing:skip-covered $(PYTEST_ARGS)

bench: $(BENCH_STAMP) ## Speeds, as ratios to etcd's in one run; needs the program etcd.
	$(BIN)/python -m bench $(BENCH_ARGS)

soak: setup ## The long runs in full length, SOAK_EXAMPLES examples a property.
	POOLMUSTER_SOAK_S=60 POOLMUSTER_EXAMPLES=$(SOAK_EXAMPLES) POOLMUSTER_READS=$(SOAK_READS) \
		POOLMUSTER_FAULT_S=$(SOAK_FAULT_S) $(BIN)/pytest -m soak --timeout=0 $(PYTEST_ARGS)

parts: setup programs $(DYNAMO_STAMP) $(DYNALITE_STAMP) ## Whatever tests can use: programs of Debian's, NVIDIA Dynamo, dynalite.

.PHONY: programs
programs:
	@tools/install-programs

$(DYNALITE_STAMP): requirements/dynalite/package.json requirements/dynalite/package-lock.json requirements/dynalite/.npmrc \
		| programs
	@rm -rf $(DYNALITE) && mkdir -p $(DYNALITE)
	@cp requirements/dynalite/package*.json requirements/dynalite/.npmrc $(DYNALITE)
	@echo "Installing what requirements/dynalite locks into $(DYNALITE)"
	@cd $(DYNALITE) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

$(DYNAMO_STAMP): requirements/dynamo.txt requirements/dynamo-itself.txt tools/make-venv
	@tools/make-venv $(DYNAMO)
	@echo "Installing what requirements/dynamo*.txt lock into $(DYNAMO) (690 MB)"
	@$(DYNAMO)/bin/python $(PIP) --no-deps --require-hashes \
		--requirement requirements/dynamo.txt --requirement requirements/dynamo-itself.txt
	@touch $@

format: setup ## Put every file into the house's format.
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

lock: ## Write the lock files anew; LOCK_ARGS=--upgrade takes newer versions.
	@tools/make-venv $(LOCKER)
	@$(LOCKER)/bin/python $(PIP) --require-hashes --requirement requirements/lock.txt
	$(UV_COMPILE) pyproject.toml --output-file requirements/runtime.txt
	$(UV_COMPILE) pyproject.toml --all-extras --output-file requirements/extras.txt
	$(UV_COMPILE) requirements/build.in --output-file requirements/build.txt
	$(UV_COMPILE) pyproject.toml --all-extras requirements/build.in --group dev --output-file requirements/dev.txt
	$(UV_COMPILE) --group bench --constraint requirements/dev.txt --output-file requirements/bench.txt
	$(UV_COMPILE) requirements/dynamo.in --output-file requirements/dynamo.txt
	$(UV_COMPILE) --no-deps requirements/dynamo-itself.in --output-file requirements/dynamo-itself.txt
	$(UV_COMPILE) requirements/lock.in --output-file requirements/lock.txt

clean: ## Remove what was built, but for the virtual environments.
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage* htmlcov dist
