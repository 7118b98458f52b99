# Two commands matter: `make run` and `make test`. PYTHON=python3.12 picks another interpreter.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := kafka_protocol runtime local_log rsm_plugins rlmm metadata_topic rlm broker tidemark
PYTEST_ARGS ?=
RUN_S3_ARGS ?=
IDS ?= $(ID)
ROUNDS ?= 300

.PHONY: run run-s3 test check lint planted prove docs clean help

help:
	@echo "make run    set up everything, start one broker on 127.0.0.1:9092, data under ./data"
	@echo "make run-s3 the same, tiering to LocalStack's S3 on 127.0.0.1:4566, without Docker"
	@echo "make test   set up everything, run all checks and tests"
	@echo "make check  the fast part: linters, types, import contracts, unit tests"
	@echo "make planted [IDS=\"S06 B04\"] plant known bugs one by one: the tests must notice each"
	@echo "make prove  all planted bugs, long rounds of the simulations (ROUNDS=300), all runs of the model"
	@echo "make docs   write docs/configuration.md anew from the keys"

run: $(VENV)/.installed
	@exec $(BIN)/tidemark dev

run-s3: $(VENV)/.installed-s3
	@exec $(BIN)/python localstack/run_broker.py $(RUN_S3_ARGS)

# LocalStack's environment is made here, not inside the first test that wants S3.
test: lint
	$(BIN)/python localstack/start.py --prepare
	$(BIN)/pytest $(PYTEST_ARGS)

check: lint
	$(BIN)/pytest tests/unit $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(BIN)/python -m broker.config.docs | cmp -s - docs/configuration.md \
		|| { echo "docs/configuration.md is stale: run make docs" >&2; exit 1; }

planted: $(VENV)/.installed-dev
	$(BIN)/python tests/planted/run.py $(IDS)

# What takes too long for every run: ROUNDS seeds where `make test` takes a dozen.
prove: planted
	TIDEMARK_RAFT_SEEDS=$(ROUNDS) TIDEMARK_LOG_SEEDS=$(ROUNDS) \
		$(BIN)/pytest tests/simulation/test_raft_power_cuts.py tests/simulation/test_log_power_cuts.py $(PYTEST_ARGS)
	TIDEMARK_MODEL_RUNS=all $(BIN)/pytest tests/model $(PYTEST_ARGS)
	TIDEMARK_WALK_SEED=0 TIDEMARK_WALK_ROUNDS=$(ROUNDS) $(BIN)/pytest tests/integration/test_damage_walk.py $(PYTEST_ARGS)

docs: $(VENV)/.installed
	$(BIN)/python -m broker.config.docs > docs/configuration.md

clean:
	rm -rf $(VENV) .localstack-venv .localstack-venv.lock .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

# The stamps make repeated runs quick: pip is asked again only when the packaging changed.
$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

$(VENV)/.installed-s3: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[s3]'
	@touch $@

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Tidemark needs Python 3.11 or newer; say make PYTHON=/path/to/python3.11" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@
