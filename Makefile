# Two commands matter: `make run` and `make test`. PYTHON=python3.12 picks another interpreter.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := kafka_protocol runtime kafka_client local_log rsm_plugins rlmm metadata_topic rlm broker pipeline pyspark_tidemark tidemark
PYTEST_ARGS ?=
RUN_S3_ARGS ?=
RUN_SPARK_ARGS ?=
IDS ?= $(ID)
ROUNDS ?= 300
MINUTES ?= 60
MERMAID = 11.12.0
MERMAID_SHA256 = 07e37dfa97b337ccc85365d57eddf99b9706f09db3b59b260d0333b23b343c4b
SEEDS ?= 1000-1299
EVENTS ?= 5000
PROCESSES ?= 2
SEEDS_MIN ?= 0
# Or nodes: brokers beside the controllers; or replication: with replicated partitions.
WORLD ?= quorum
TURN ?= 0
# Three for each of two cores: the tests of brokers wait more than they compute.
WORKERS ?= 6
PYTEST = $(BIN)/pytest -n $(WORKERS)
# SECONDS_MAX=300 ends a part of CI's share after that time.
UNTIL = $(if $(SECONDS_MAX),TIDEMARK_TESTS_UNTIL=$$(($$(date +%s) + $(SECONDS_MAX))))

SPARK_TESTS = $(wildcard tests/integration/test_lake_*.py tests/integration/test_spark_*.py \
	tests/integration/test_pipeline_*.py tests/integration/test_scan*.py tests/integration/test_run_spark.py)

# Without byte code every broker that a test starts compiles all of its modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run run-s3 run-spark test again check integration lint localstack clients bytecode long soak prove-spark planted mutate simulate simulate-replicas simulate-bugs fuzz pythons prove docs site changelog clean help

help:
	@echo "make run    set up everything, start one broker on 127.0.0.1:9092, data under ./data"
	@echo "make run-s3 the same, tiering to LocalStack's S3 on 127.0.0.1:4566, without Docker"
	@echo "make run-spark  the same, with a filled topic and a first query of Spark"
	@echo "make test   set up everything, run all checks, and a round of each kind of test: 20 to 30 minutes"
	@echo "make integration [TURN=1 SECONDS_MAX=600] the second stage: real brokers, peers and stores at length;"
	@echo "            what comes first, and so is not left out when the time is up, is another third each turn"
	@echo "make check  the fast part: linters, types, import contracts, unit tests"
	@echo "make planted [IDS=\"S06 B04\"] plant known bugs one by one: the tests must notice each"
	@echo "make mutate [MODULES=rlmm/lineage.py] change pure modules in small ways: tests must notice each,"
	@echo "            or tests/mutation/survivors.toml says why none can"
	@echo "make simulate [SEEDS=1000-1299 EVENTS=5000] simulated quorums, one a seed; WORLD=nodes: brokers, too;"
	@echo "            WORLD=replication, or make simulate-replicas: brokers with replicated partitions"
	@echo "make simulate-bugs  the same with each planted bug that has a seed: it must be found;"
	@echo "            RECORDED=1 by the seed that its table records, RECORD=1 records another where it is not"
	@echo "make fuzz [ROUNDS=300] bad bytes at every decoder: an hour"
	@echo "make pythons the unit and property tests with every Python from 3.11 to 3.14 on PATH"
	@echo "make soak [MINUTES=60] a broker under 200 clients of all kinds: nothing may grow"
	@echo "make prove-spark  the pipeline on Spark at full length: 2 GB, 20 kills, all stores: half an hour"
	@echo "make prove  everything: all rounds of all tests, all Pythons, all planted bugs,"
	@echo "            many seeds of the simulations (ROUNDS=300): a day"
	@echo "make docs   write configuration.md, apis.md, health-reasons.md and metrics.md in docs again from the sources"
	@echo "make site   docs and public docstrings as pages, in build/site/index.html"
	@echo "make changelog [VERSION=0.1.0] show what newsfragments/ says; with VERSION write CHANGELOG.md"

run: $(VENV)/.installed
	@exec $(BIN)/tidemark dev

run-s3: $(VENV)/.installed-s3
	@exec $(BIN)/python localstack/run_broker.py $(RUN_S3_ARGS)

run-spark: $(VENV)/.installed-spark
	@exec $(BIN)/python localstack/run_spark.py $(RUN_SPARK_ARGS)

# LocalStack's environment is made here, not inside the first test that wants S3; so is the tests' byte code.
test: $(VENV)/.installed-dev
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint localstack bytecode
	$(PYTEST) -m "not long and not integration" $(PYTEST_ARGS)

# The second stage, which `make test` leaves out.
integration: localstack clients
	$(UNTIL) TIDEMARK_TURN=$(TURN) $(PYTEST) -m "integration and not long" $(PYTEST_ARGS)

# What failed when it ran last, one test after the other.
again: $(VENV)/.installed-dev
	$(BIN)/pytest -n 0 -vv --last-failed --last-failed-no-failures none $(PYTEST_ARGS)

check: lint
	$(PYTEST) -m "not long" tests/unit $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/language.py

localstack: $(VENV)/.installed-dev
	$(BIN)/python localstack/start.py --prepare

clients: $(VENV)/.installed-dev
	$(BIN)/python -m tests.support.groups.builds

bytecode: $(VENV)/.installed-dev
	@$(BIN)/pytest --collect-only -qq -p no:randomly -m "not long" > /dev/null

# What `make test` leaves out, and all rounds of what it goes round once.
long: $(VENV)/.installed-dev
	$(UNTIL) TIDEMARK_PROVE=1 $(PYTEST) -m "long or rounds" -rs $(PYTEST_ARGS)

# One after the other: each has a JVM, a broker and a store.
prove-spark: $(VENV)/.installed-dev localstack
	$(UNTIL) TIDEMARK_PROVE=1 TIDEMARK_SPARK_MB=2000 $(BIN)/pytest -n 0 -rs $(SPARK_TESTS) $(PYTEST_ARGS)

# 2 minutes are CI's share; figures that must be flat are validated after the warm-up, a third of the time.
soak: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES)

planted: $(VENV)/.installed-dev
	$(BIN)/python -m tests.planted.run $(if $(SECONDS_MAX),--seconds $(SECONDS_MAX)) $(IDS)

mutate: $(VENV)/.installed-mutation
	$(BIN)/python -m tests.mutation.run $(MODULES)

# SECONDS_MAX ends it after that time, but not before SEEDS_MIN seeds.
simulate: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.simulation.run --world $(WORLD) --seeds $(SEEDS) --events $(EVENTS) \
		--processes $(PROCESSES) --at-least $(SEEDS_MIN) $(if $(SECONDS_MAX),--seconds $(SECONDS_MAX))

# Of 2,000 events each: a seed has some seconds of what comes between two faults.
simulate-replicas:
	@$(MAKE) --no-print-directory simulate WORLD=replication EVENTS=2000

simulate-bugs: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.support.quorum_world.planted $(if $(RECORDED),--recorded) $(if $(RECORD),--record) $(IDS)

# What is found goes into tests/fuzz/decoders.
fuzz: $(VENV)/.installed-dev
	TIDEMARK_PROVE=1 TIDEMARK_FUZZ_EXAMPLES=$$(($(ROUNDS) * 50)) \
		$(BIN)/pytest -n 2 tests/property/test_decoders_on_any_bytes.py $(PYTEST_ARGS)

# With TURN=1 one of them; SECONDS_MAX=300 ends it after that time.
pythons: $(VENV)/.installed-dev
	$(UNTIL) WORKERS=$(WORKERS) $(BIN)/python .ci/pythons.py $(if $(filter command line,$(origin TURN)),--turn $(TURN)) $(PYTEST_ARGS)

prove: lint localstack pythons planted mutate
	TIDEMARK_PROVE=1 $(PYTEST) $(PYTEST_ARGS)
	TIDEMARK_RAFT_SEEDS=$(ROUNDS) TIDEMARK_LOG_SEEDS=$(ROUNDS) TIDEMARK_TOPIC_SEEDS=$(ROUNDS) \
		$(PYTEST) tests/simulation $(PYTEST_ARGS)
	$(BIN)/python -m tests.model.replication --full
	$(BIN)/python -m tests.model.tier --full
	$(BIN)/python -m tests.model.voters --full
	$(MAKE) --no-print-directory fuzz

docs: $(VENV)/.installed-dev
	$(BIN)/python -m broker.config.docs > docs/configuration.md
	$(BIN)/python -m broker.handlers.docs > docs/apis.md
	$(BIN)/python -m broker.observe.health_docs > docs/health-reasons.md
	$(BIN)/python -m tests.support.described.metrics > docs/metrics.md

# A warning fails it, and so does a link to a page or a heading that is not there.
site: $(VENV)/.installed-site build/mermaid/mermaid.min.js
	$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going docs build/site
	@echo "build/site/index.html"

# What draws the diagrams: the one file of the npm package that the pages load.
build/mermaid/mermaid.min.js:
	@mkdir -p $(@D)
	npm pack --silent --pack-destination $(@D) mermaid@$(MERMAID) # from the registry that npm is set to
	tar -xzOf $(@D)/mermaid-$(MERMAID).tgz package/dist/mermaid.min.js > $@.half
	echo "$(MERMAID_SHA256)  $@.half" | sha256sum --check --quiet
	@mv $@.half $@

# VERSION=0.1.0 writes CHANGELOG.md and removes the fragments; without it they are only shown.
changelog: $(VENV)/.installed-dev
	@$(BIN)/towncrier build $(if $(VERSION),--yes --version $(VERSION),--draft --version unreleased)

clean:
	rm -rf $(VENV) $(VENV)-3.* .clients .localstack-venv .localstack-venv.lock .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

# The stamps make repeated runs quick: pip is asked again only when the packaging changed. Each asks
# once for all that it wants; what the tests want holds what the others want.
$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(VENV)/.installed $(VENV)/.installed-s3 $(VENV)/.installed-spark $@

$(VENV)/.installed-spark: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[s3,spark]'
	@touch $(VENV)/.installed $(VENV)/.installed-s3 $@

$(VENV)/.installed-mutation: $(VENV)/.installed-dev
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[mutation]'
	@touch $@

$(VENV)/.installed-site: $(VENV)/.installed-dev
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[site]'
	@touch $@

$(VENV)/.installed-s3: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[s3]'
	@touch $(VENV)/.installed $@

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Tidemark needs Python 3.11 or newer; say make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
