# Every target does its own set-up in .venv; nothing has to be installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
JOBS ?= 2

# What is kept with `| tee` fails when the program does, and is written as it comes.
SHELL := /usr/bin/env bash -o pipefail
export PYTHONUNBUFFERED := 1

.PHONY: help demo test test-quick lint format size bench wide intervals acs-memory targets defaults prices strategies group-fair model-quality acs personal references front surgery choosing tuning reproduce deploy-demo deploy-faults release-check federation-cost test-wheel test-lowest test-pythons compare-bytes trace-round test-network kill-sweep gate-attacks clean byzfl fuzz failpoints durability deploy-kills attacks disclosure reliability

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(VENV)/.core ## FedAvg and mFairFL on Adult side by side: what fairness costs, and whom (about a minute)
	$(BIN)/python scripts/demo.py

test: $(VENV)/.dev lint ## lint, types, import rules, all tests (ten minutes on two processors)
	$(ONE_THREAD) $(BIN)/pytest -q --doctest-modules src
	$(ONE_THREAD) $(BIN)/pytest -n $(JOBS) --dist worksteal -m 'not network'

test-quick: $(VENV)/.dev ## the tests that are neither slow nor start a deployment (three minutes)
	$(ONE_THREAD) $(BIN)/pytest -q -n $(JOBS) --dist worksteal -m 'not (slow or deployment or network)'

lint: $(VENV)/.dev ## ruff, mypy --strict, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev ## let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## side-by-side timings; the output is kept in benchmarks/
	$(ONE_THREAD) $(BIN)/python benchmarks/training.py | tee benchmarks/training.txt
	$(ONE_THREAD) $(BIN)/python benchmarks/aggregation.py | tee benchmarks/aggregation.txt

wide: $(VENV)/.dev ## rows with hundreds of categories beside a narrow form; kept in benchmarks/, but for a table of your own (FILE=)
	$(ONE_THREAD) $(BIN)/python benchmarks/wide.py $(if $(FILE),"$(FILE)",> benchmarks/wide.txt)
	$(if $(FILE),,$(ONE_THREAD) $(BIN)/python benchmarks/wide.py --layer >> benchmarks/wide.txt && cat benchmarks/wide.txt)

scale: $(VENV)/.dev ## clients at rest and measured, two workers, the default run beside version 0.5.0 (minutes, on a quiet machine)
	test -d .base-0.5.0 || git worktree add --detach .base-0.5.0 dbf6acc
	$(ONE_THREAD) $(BIN)/python benchmarks/scale.py --base .base-0.5.0 > benchmarks/scale.txt
	cat benchmarks/scale.txt

million: $(VENV)/.dev ## a million rows: FILE=a reduced ACSIncome table; time by phase, memory, workers (minutes)
	@test -n "$(FILE)" || { echo "give a table of your own: make million FILE=acs.parquet"; exit 2; }
	$(ONE_THREAD) $(BIN)/python benchmarks/million.py "$(FILE)" > benchmarks/million.txt
	cat benchmarks/million.txt

peers: $(VENV)/.dev ## a round beside other libraries, each in its own environment (20 minutes, 6 GB): benchmarks/peers.txt
	$(ONE_THREAD) $(BIN)/python benchmarks/peers.py --out benchmarks/peers.txt

closing: $(VENV)/.dev ## what follows the last round, at 5 to 5,000 clients (minutes)
	$(ONE_THREAD) $(BIN)/python benchmarks/closing.py --coverage 300 > benchmarks/closing.txt
	cat benchmarks/closing.txt

reading: $(VENV)/.dev ## CSV files beside pyarrow alone and the careful reader (a minute)
	$(ONE_THREAD) $(BIN)/python benchmarks/reading.py > benchmarks/reading.txt
	cat benchmarks/reading.txt

intervals: $(VENV)/.dev ## coverage and limits of a violation's interval on drawn tables (a minute)
	$(ONE_THREAD) $(BIN)/python benchmarks/intervals.py > benchmarks/intervals.txt
	cat benchmarks/intervals.txt

acs-memory: $(VENV)/.dev ## memory on a million rows: FILE=a reduced ACSIncome table; the output is kept in benchmarks/
	@test -n "$(FILE)" || { echo "give a table of your own: make acs-memory FILE=acs.parquet"; exit 2; }
	$(ONE_THREAD) $(BIN)/python benchmarks/acs_memory.py "$(FILE)" > benchmarks/acs_memory.txt
	cat benchmarks/acs_memory.txt

targets: $(VENV)/.dev ## mFairFL on fresh seeds of all data sets and notions (minutes): results/
	$(BIN)/python benchmarks/targets.py

defaults: $(VENV)/.dev ## candidates for the default setting against boosting, on folds (an hour; ACS=file.parquet adds its rows): results/
	$(ONE_THREAD) $(BIN)/python benchmarks/defaults.py $(if $(ACS),--acs "$(ACS)")

prices: $(VENV)/.dev ## candidates for the settings of fairness prices, on folds (half an hour): results/
	$(ONE_THREAD) $(BIN)/python benchmarks/prices.py

strategies: $(VENV)/.dev ## every strategy on every data set, and what a round costs (minutes)
	$(ONE_THREAD) $(BIN)/python benchmarks/strategies.py > benchmarks/strategies.txt
	cat benchmarks/strategies.txt

group-fair: $(VENV)/.dev ## the group-fair methods on Adult, and fairlearn beside them (minutes): results/
	$(ONE_THREAD) $(BIN)/python benchmarks/group_fair.py

model-quality: $(VENV)/.dev ## the default model beside pooled boosting; OWN="LABEL=FILE.toml" adds a file (an hour): results/
	$(BIN)/python benchmarks/model_quality.py --own $(if $(OWN),"$(OWN)")

acs: $(VENV)/.dev ## five methods on ACSIncome by state; FILE=rows.parquet LABEL="…" (half an hour): results/
	$(BIN)/python benchmarks/acs_silos.py "$(FILE)" $(if $(LABEL),--label "$(LABEL)")

personal: $(VENV)/.dev ## thresholds of groups and clients; FILE=rows.parquet LABEL="…" (half an hour): results/
	@test -n "$(FILE)" || { echo "give a table of your own: make personal FILE=acs.parquet"; exit 2; }
	$(ONE_THREAD) $(BIN)/python benchmarks/personal.py "$(FILE)" --folds > benchmarks/personal.txt
	$(ONE_THREAD) $(BIN)/python benchmarks/personal.py "$(FILE)" $(if $(LABEL),--label "$(LABEL)")

references: $(VENV)/.dev ## what the pooled references' settings were chosen by (minutes)
	$(ONE_THREAD) $(BIN)/python benchmarks/references.py > benchmarks/references.txt
	cat benchmarks/references.txt

front: $(VENV)/.dev ## mFairFL and four others under one rule and tolerance (hours; SEEDS=): results/front.md
	$(ONE_THREAD) $(BIN)/python benchmarks/front.py --part folds --seeds 2
	$(ONE_THREAD) $(BIN)/python benchmarks/front.py --part test --seeds $(or $(SEEDS),10)
	$(ONE_THREAD) $(BIN)/python benchmarks/front.py --part page

surgery: $(VENV)/.dev ## the worst client with and without the conflict step (ten minutes): results/
	$(BIN)/python benchmarks/surgery.py

choosing: $(VENV)/.dev ## how often `mfairfl choose` keeps its budget on test rows, ten seeds (15 minutes): results/
	$(ONE_THREAD) $(BIN)/python benchmarks/choosing.py

tuning: $(VENV)/.dev ## choose the hyper-parameters of every method by cross-validation (an hour): results/paper
	$(BIN)/mfairfl reproduce tuning --out runs/tuning
	cp runs/tuning/lock.toml runs/tuning/tuning.csv results/paper/

reproduce: $(VENV)/.dev ## the paper's tables and figures, five seeds, both budgets (hours): results/reproduction
	$(BIN)/mfairfl reproduce all --seeds 5 --out results/reproduction

deploy-demo: $(VENV)/.dev ## three silos with a CSV each, over TLS on loopback; compared with the embedded engine
	$(BIN)/python scripts/deploy_demo.py

deploy-faults: $(VENV)/.dev ## kill, stop, starve and mislead a real deployment (ten minutes): results/
	cd tests && PYTHONPATH=.:helpers:adversary:deployment ../$(BIN)/python deployment/faults.py | tee ../results/deployment-faults.txt

federation-cost: $(VENV)/.dev ## seconds and bytes of a federation over Flower (minutes): benchmarks/ and its page
	$(ONE_THREAD) $(BIN)/python benchmarks/federation.py > benchmarks/federation.txt
	$(BIN)/python benchmarks/federation.py --page

test-wheel: $(VENV)/.dev ## build the wheel and test what users install
	rm -rf dist .venv-wheel
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip --quiet install -c constraints.txt "$$(ls dist/*.whl)[dev]"
	cd tests && $(ONE_THREAD) ../.venv-wheel/bin/pytest -q -n $(JOBS) --dist worksteal -m 'not network' -c ../pyproject.toml --rootdir=.. .

test-lowest: ## test with the lowest versions pyproject.toml allows
	rm -rf .venv-lowest
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) scripts/lowest_versions.py > .venv-lowest/lowest.txt
	.venv-lowest/bin/python -m pip --quiet install -c .venv-lowest/lowest.txt --editable '.[dev]'
	# old releases of others may announce deprecations of their own
	$(ONE_THREAD) .venv-lowest/bin/pytest -q -n $(JOBS) --dist worksteal -m 'not network' -W ignore::DeprecationWarning

test-pythons: ## the suite with every Python from 3.11 on that is found; PYTHONS="…" names others (gigabytes)
	PYTHONS="$(PYTHONS)" ONE_THREAD="$(ONE_THREAD)" JOBS=$(JOBS) sh scripts/test_pythons.sh

size: ## code lines, files, statements and tokens by package, beside version 0.7.0
	$(PYTHON) scripts/size.py

compare-bytes: $(VENV)/.dev ## whether served models of every strategy equal those of a commit, BASE=…, bit for bit (minutes)
	@test -n "$(BASE)" || { echo "name a commit: make compare-bytes BASE=HEAD~1"; exit 2; }
	rm -rf .base && git worktree prune && git worktree add --detach .base $(BASE)
	$(PYTHON) -m venv .base/.venv
	# with an extra, which version 0.7.0 could not do without
	.base/.venv/bin/python -m pip --quiet install --constraint .base/constraints.txt --editable '.base[flower]'
	$(ONE_THREAD) .base/.venv/bin/python scripts/model_bytes.py > .base/bytes.json
	$(ONE_THREAD) $(BIN)/python scripts/model_bytes.py > .base/bytes-now.json
	$(BIN)/python scripts/model_bytes.py .base/bytes.json .base/bytes-now.json

trace-round: $(VENV)/.core ## the functions and files between `mfairfl train` and the new weights
	rm -rf runs/trace
	$(BIN)/python scripts/trace_round.py runs/trace > /dev/null

test-network: $(VENV)/.dev ## fetch COMPAS, German and a state of ACSIncome for real
	$(ONE_THREAD) $(BIN)/pytest -m network

kill-sweep: $(VENV)/.dev ## kill -9 a training run at many moments; every resumed run must end in the same bits
	$(ONE_THREAD) $(BIN)/python benchmarks/kill_sweep.py | tee benchmarks/kill_sweep.txt

gate-attacks: $(VENV)/.dev ## unfinished bodies and half-open requests against a real gate (a minute); the output is kept in benchmarks/
	$(ONE_THREAD) $(BIN)/python benchmarks/gate.py | tee benchmarks/gate.txt

clean: ## remove environments, caches and built files
	rm -rf .venv .venv-wheel .venv-lowest .venv-py* .base .base-* .cache/peers dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

byzfl: $(VENV)/.dev ## the robust rules against ByzFL's on random inputs; stores some of its outputs for the tests
	$(PIP) install --upgrade --target .cache/byzfl --no-deps byzfl==0.0.11
	PYTHONPATH=.cache/byzfl $(ONE_THREAD) $(BIN)/python scripts/byzfl_agreement.py --store tests/geometry/byzfl_outputs.json

COUNT ?= 100000
fuzz: $(VENV)/.dev ## one answer of one client mutated, COUNT times over twelve strategies (minutes): benchmarks/fuzz.txt
	PYTHONPATH=tests:tests/helpers:tests/adversary $(ONE_THREAD) $(BIN)/python benchmarks/fuzz.py --count $(COUNT) | tee benchmarks/fuzz.txt

failpoints: $(VENV)/.dev ## kill -9 a run at 12 places of each of 10 rounds; every one must end in the same bits (minutes)
	$(ONE_THREAD) $(BIN)/python benchmarks/failpoints.py | tee benchmarks/failpoints.txt

durability: $(VENV)/.dev ## damaged checkpoints, full and read-only disks, several processes on one folder (minutes)
	$(ONE_THREAD) $(BIN)/python benchmarks/durability.py | tee benchmarks/durability.txt

deploy-kills: $(VENV)/.dev ## kill -9 the processes of real deployments, 10 times (20 minutes): results/
	cd tests && PYTHONPATH=.:helpers:adversary:deployment ../$(BIN)/python deployment/kills.py | tee ../results/deployment-kills.txt

disclosure: $(VENV)/.dev ## what a coordinator can read out of a silo: rows, scores, who took part (5 minutes)
	PYTHONPATH=tests:tests/helpers:tests/adversary $(ONE_THREAD) $(BIN)/python benchmarks/disclosure.py > benchmarks/disclosure.txt
	cat benchmarks/disclosure.txt

attacks: $(VENV)/.dev ## what liars achieve, all attacks and defences (two hours; it resumes): results/attacks.md
	PYTHONPATH=benchmarks $(BIN)/python -m attacks --suite core wider --out results/attacks.csv \
	  --page results/attacks.md > /dev/null

release-check: $(VENV)/.dev ## all that is asked of a release but test-pythons (up to 90 minutes): results/release-check.txt
	$(BIN)/python scripts/release_check.py

reliability: $(VENV)/.dev ## kills, damage, full disks, the gate, 100,000 mutated answers (twenty minutes): results/reliability.txt
	$(BIN)/python scripts/release_check.py gate-attacks durability failpoints fuzz --out results/reliability.txt
