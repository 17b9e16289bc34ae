# dpstream: everything a contributor or a newcomer runs. `make` alone prints the targets.
#
# A fresh machine needs Python 3.11 or newer, make and git. Nothing outside this folder is changed:
# packages go to .venv, exactly those whose hashes stand in requirements/.

PYTHON ?= python3
JOBS ?= 2
VENV := .venv
# Material for MkDocs announces a successor at every build; nothing here is to be done about it.
export NO_MKDOCS_2_WARNING := 1
# Tests and audits start hundreds of processes, each of which would translate all of its modules anew.
unexport PYTHONDONTWRITEBYTECODE
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header $(if $(UPGRADE),--upgrade)

# One stamp per set of packages. The developers' set contains the other one.
RUN := $(VENV)/.installed-run
DEV := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Deep tests that are fast: conformance and oracles of each part, without what starts processes or servers.
QUICK := privacy/test_budgets.py counters/test_counters.py tables config/test_recipes.py \
	graphical/test_graphical.py project/test_toy_family.py project/test_layering.py \
	sinks/test_sinks.py sources/test_source_errors.py streams/test_unspent.py schema/test_schema_toml.py
CHANGED = $$(git diff --name-only --diff-filter=d $(or $(BASE),HEAD) -- '*.py'; git ls-files -o --exclude-standard -- '*.py')

.PHONY: help demo quick test docs-test tutorials lint audit audit-faults replay faults torture versions browser gallery postgres mariadb spark spark-cluster bench docs lock clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(RUN) ## simulate a private stream, run dpstream on it, write demo/ with a page of both
	$(BIN)/dpstream demo

quick: $(DEV) ## before a commit: lint of changed files, deep fast tests (under a minute; BASE=main: changed since then)
	@files="$(CHANGED)"; [ -z "$$files" ] || { $(BIN)/ruff check $$files && $(BIN)/ruff format --check $$files; }
	$(BIN)/pytest -q -n $(JOBS) --dist worksteal $(addprefix tests/,$(QUICK)) $(ARGS)

test: $(DEV) ## the whole test suite with doctests (ARGS="tests/counters -k tree" for a part)
	$(BIN)/pytest -q -n $(JOBS) --dist worksteal $(ARGS)

docs-test: $(DEV) ## execute every block of code of the documentation that says not why not (5 minutes)
	DPSTREAM_PAGES=1 $(BIN)/pytest -q -n $(JOBS) --dist worksteal --timeout 900 tests/cli/test_pages.py

tutorials: $(DEV) ## type the tutorials into an empty folder, from the built wheel, with only Python (WRITE=1: times and pictures)
	$(BIN)/python benchmarks/tutorials.py $(if $(WRITE),--write)

lint: $(DEV) ## style, types, import layering, strict build of the docs
	$(BIN)/ruff check src lab tests $(wildcard benchmarks docs)
	$(BIN)/ruff format --check src lab tests $(wildcard benchmarks docs)
	$(BIN)/mypy --strict src/dpstream lab/src/dpstream_lab
	$(BIN)/pytest -q tests/project/test_layering.py
	$(BIN)/mkdocs build --strict --site-dir site

audit: $(DEV) ## short privacy audits of the running code with their negative controls (LONG=1: the long ones)
	$(BIN)/dpstream lab audit $(if $(LONG),--long) $(if $(OUT),--out $(OUT))

replay: $(DEV) ## what 43 small streams publish under repeated randomness is as before (ACCEPT=1: it may change; NAMES="census pmwg")
	$(BIN)/python tests/replay/replay.py --jobs $(JOBS) $(if $(ACCEPT),--accept) $(NAMES)

faults: $(DEV) ## plant faults one by one in a copy of the program; a test has to catch each (resumable; NAMES="ledger noise")
	$(BIN)/python tests/faults/plant.py $(if $(AGAIN),--again) $(NAMES)

audit-faults: $(DEV) ## plant faults one by one; `dpstream audit CONFIG` has to see each, in every family that has its code (NAMES="census")
	$(BIN)/python tests/faults/audited.py $(if $(OUT),--out $(OUT)) $(NAMES)

torture: $(DEV) ## thousands of random faults in random small streams (POINTS=3000 SEED=1 MINUTES=20 POSTGRES=0.1: share on a server)
	$(BIN)/python tests/streams/torture.py --points $(or $(POINTS),3000) --seed $(or $(SEED),1) --jobs $(JOBS) \
	  $(if $(MINUTES),--minutes $(MINUTES)) $(if $(POSTGRES),--postgres $(POSTGRES))
	DPSTREAM_KILL_STRIDE=1 $(BIN)/pytest -q -n $(JOBS) --timeout 900 tests/streams/test_faults.py tests/service/desk/test_worker_killed.py

versions: $(DEV) ## the wheel with the oldest, pinned and newest versions (ONLY="oldest pinned"; a few minutes); peers of the benchmarks; validators of folders
	$(BIN)/python tests/project/versions.py $(ONLY)
	DPSTREAM_PEERS=1 $(BIN)/pytest -q tests/evaluate/test_papers.py -k peers
	$(BIN)/uv venv -q --clear $(VENV)/validators
	$(BIN)/uv pip install -q --python $(VENV)/validators --require-hashes -r requirements/validators.txt
	DPSTREAM_VALIDATORS=$(VENV)/validators/bin/python $(BIN)/pytest -q tests/cli/test_explained_folder.py -k validators

browser: ## install Chromium (Debian, Ubuntu) for the tests of the HTML report, which skip without one
	@command -v chromium chromium-browser google-chrome >/dev/null || { \
	  SUDO=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$SUDO apt-get update -qq && $$SUDO apt-get install -y -qq --no-install-recommends chromium >/dev/null; }

gallery: $(DEV) browser ## make the pictures of pages in the docs again, of invented streams (some minutes)
	$(BIN)/python docs/gallery.py

postgres: ## install a PostgreSQL server (Debian, Ubuntu) for the tests, which start their own and skip without one
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { \
	  SUDO=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$SUDO apt-get update -qq && $$SUDO apt-get install -y -qq --no-install-recommends postgresql >/dev/null; }

mariadb: ## install a MariaDB server (Debian, Ubuntu) for the tests, which start their own and skip without one
	@command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || { \
	  SUDO=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$SUDO apt-get update -qq && $$SUDO apt-get install -y -qq --no-install-recommends \
	    mariadb-server-core mariadb-client-core >/dev/null; }

spark: $(DEV) ## install PySpark, and a headless Java (Debian, Ubuntu), for the tests of Spark, which skip without them
	@$(PIP) install -q --require-hashes -r requirements/spark.txt
	@command -v java >/dev/null || { \
	  SUDO=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$SUDO apt-get update -qq && $$SUDO apt-get install -y -qq --no-install-recommends default-jre-headless >/dev/null; }

spark-cluster: spark ## the long tests of Spark: every kill of a driver, a cluster of three processes, Spark Connect (10 minutes)
	@$(PIP) install -q --require-hashes -r requirements/spark-connect.txt \
	  || echo "Spark Connect: its client could not be installed"
	DPSTREAM_SPARK_LONG=1 $(BIN)/pytest -q tests/spark
	$(BIN)/python tests/spark/cluster.py

bench: $(DEV) ## run the short benchmarks; LIST=1 lists all; BENCH="name ..." runs chosen ones
	@$(BIN)/python benchmarks/run.py $(if $(LIST),--list) $(BENCH)

docs: $(DEV) ## build the documentation into site/ (SERVE=1: serve it on this machine)
	$(BIN)/mkdocs $(if $(SERVE),serve,build) --strict $(if $(SERVE),,--site-dir site)

lock: $(DEV) ## rewrite the hash-pinned lock files (UPGRADE=1: with newer versions)
	$(LOCK) --extra dev pyproject.toml -o requirements/dev.txt
	$(LOCK) --extra spark -c requirements/dev.txt pyproject.toml -o requirements/spark.txt
	$(LOCK) --group validators -o requirements/validators.txt
	$(LOCK) --group connect -c requirements/spark.txt -o requirements/spark-connect.txt
	$(LOCK) --group build -c requirements/dev.txt pyproject.toml -o requirements/run.txt
	$(LOCK) --extra plot --extra service --group build -c requirements/dev.txt pyproject.toml -o requirements/service.txt

clean: ## remove everything that make made, .venv included
	rm -rf $(VENV) site demo dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src lab tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "dpstream needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1 || true)." \
	       "Name another one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu it is the package python3-venv." >&2; exit 1; }

# The packages themselves, dpstream and dpstream-lab, are installed without their dependencies and without a network:
# hatchling and editables are in both lock files. Modules are translated when they are first imported: most never are.
define install
	@echo "installing $(1) into $(VENV) (a few minutes the first time)"
	@$(PIP) install -q --no-compile --require-hashes -r $(1)
	@$(PIP) install -q --no-deps --no-build-isolation --editable . --editable ./lab
	@touch $@
endef

# Where the developers' set is already there and not older than the locks, the demo's set is too.
$(RUN): requirements/run.txt pyproject.toml lab/pyproject.toml | $(BIN)/python
	$(if $(shell test $(DEV) -nt requirements/run.txt -a $(DEV) -nt pyproject.toml -a $(DEV) -nt lab/pyproject.toml && echo yes),@touch $@,$(call install,$<))

$(DEV): requirements/dev.txt pyproject.toml lab/pyproject.toml | $(BIN)/python
	$(call install,$<)
