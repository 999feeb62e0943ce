# Thin targets over a .venv that plain python3 and pip fill from hash-locked files.
#   make run     start the server            make test    set up and run all tests
#   make quick   unit tests in a minute      make near    tests of what changed since main
#   make check   what CI runs                make fix     let the tools mend what they can
#   make dist    what can be handed on       make install PREFIX=/opt/orchid
#   make man     manual pages of all commands

PYTHON ?= python3
# Tests wait for half of their time, so three of them share two cores.
JOBS ?= $(shell expr '(' $$(getconf _NPROCESSORS_ONLN) '*' 3 + 1 ')' / 2)
ARGS ?=
MINUTES ?= 10
ROUNDS ?= 10000
PREFIX ?= $(HOME)/.local/share/orchid

# Without this, each process of a run compiles all tests and modules again.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
CODE := src tests benchmarks deploy

.DEFAULT_GOAL := help
.PHONY: help setup run test quick near check lint fix bench growth soak overload torture mutants removals adversary fuzz conformance demo-cluster demo-revocation demo-rotation exchange-runs console-runs upgrade lock dist image install man

help:
	@sed -n 's/^# \{0,1\}//; 1,6p' Makefile

setup: .venv/.installed

run: setup
	$(BIN)/orchid serve $(ARGS)

test: .venv/.installed-dev
	scripts/system-packages
	$(BIN)/python -m pytest -q -n $(JOBS) --maxprocesses 8 --dist worksteal $(ARGS)

# The unit tests that start no server, process or browser (see tests/starting.py), with few examples of each property.
# These tests do not wait, so there are as many at a time as cores.
quick: export ORCHID_HYPOTHESIS ?= quick
quick: .venv/.installed-dev
	$(BIN)/python -m pytest -q -m "not starts" -n $$(getconf _NPROCESSORS_ONLN) --maxprocesses 8 --dist worksteal tests/unit $(ARGS)

# The tests of the packages that changed, and those that name a changed module; see tests/near.py.
near: .venv/.installed-dev
	$(BIN)/python -m tests.near -q -n $(JOBS) --maxprocesses 8 --dist worksteal $(ARGS)

check: lint test

lint: .venv/.installed-dev
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

fix: .venv/.installed-dev
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

# What each kind of request costs, by itself or beside another server: make bench ARGS='--checkout ../before'
bench: .venv/.installed-dev
	$(BIN)/python -m benchmarks.compare $(ARGS)

# The same requests among 500 objects and among a million; a quarter of an hour, 2 GB of disk.
growth: .venv/.installed-dev
	$(BIN)/python -m benchmarks.growth $(ARGS)

# Mixed load at a modest rate, and whether memory stays flat: make soak MINUTES=30
soak: .venv/.installed-dev
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES) $(ARGS)

# Far more callers than the server can serve, and what each class of them got; two minutes or so.
overload: .venv/.installed-dev
	$(BIN)/python -m benchmarks.overload $(ARGS)

# Faults on both stores, so many minutes each, then crashes, also of an agent: make torture MINUTES=10
torture: export ORCHID_CRASH_ROUNDS ?= $(shell expr 20 '*' $(MINUTES))
torture: .venv/.installed-dev
	scripts/system-packages
	$(BIN)/python -m tests.faults.run --store workers --minutes $(MINUTES) $(ARGS)
	$(BIN)/python -m tests.faults.run --store etcd --minutes $(MINUTES) $(ARGS)
	$(BIN)/python -m pytest -q -n 0 -o faulthandler_timeout=0 tests/e2e/test_crash.py
	$(BIN)/python -m tests.faults.killed_renewals

# Every recorded exchange in both namings, on a file, with workers and on etcd; and the protobuf ones.
conformance: export ORCHID_STORES ?= sqlite,workers,etcd
conformance: .venv/.installed-dev
	scripts/system-packages
	$(BIN)/python -m pytest -q -n $(JOBS) --maxprocesses 8 tests/conformance tests/unit/kernel/wire/codec/test_protobuf.py $(ARGS)

# Three servers over one etcd, two credentials taken back, with the times.
demo-revocation: .venv/.installed-dev
	scripts/system-packages
	$(BIN)/python -m tests.e2e.demo_revocation $(ARGS)

# Three servers over one etcd replace the token key under load, and nothing is rejected; then the key is revoked.
# Then an authority replaces its key, under handshakes of nginx, curl, openssl, Java and kubectl. Five minutes or so;
# KUBE_APISERVER=path has the reference's API server verify tokens, too.
demo-rotation: .venv/.installed-dev
	scripts/system-packages
	$(BIN)/python -m tests.rotation.tokens --kube-apiserver "$(KUBE_APISERVER)" $(ARGS)
	$(BIN)/python -m tests.rotation.authorities $(HANDSHAKES)

# What rotation costs a request, and what 100,000 recorded tokens cost; a minute or so.
.PHONY: rotation-costs
rotation-costs: .venv/.installed-dev
	$(BIN)/python -m tests.rotation.costs $(ARGS)

# Servers die after every write of a rotation, so many times for each sort of key and each store; hours:
# make rotation-faults ROUNDS=200 ARGS='--store etcd --only tokens'
.PHONY: rotation-faults
rotation-faults: ROUNDS = 200
rotation-faults: .venv/.installed-dev
	scripts/system-packages
	$(BIN)/python -m tests.rotation.faults.run --rounds $(ROUNDS) $(ARGS)

# An unmodified kube-apiserver asks two Orchid servers; two credentials are revoked, with the times:
# make demo-cluster KUBE_APISERVER=path/to/kube-apiserver
demo-cluster: .venv/.installed-dev
	@test -x "$(KUBE_APISERVER)" || { echo "KUBE_APISERVER=path names no program"; exit 2; }
	scripts/system-packages
	$(BIN)/python -m tests.e2e.demo_cluster --kube-apiserver "$(KUBE_APISERVER)" $(ARGS)

# Token exchange with google-auth, authlib, oauth4webapi, Apache and nginx, and a thousand tokens in one review.
exchange-runs: export ORCHID_REVIEWED_TOKENS ?= 1000
exchange-runs: .venv/.installed-dev
	scripts/system-packages
	$(BIN)/python -m pytest -v -n 0 tests/e2e/test_token_exchange.py tests/e2e/test_web_servers.py $(ARGS)

# The console in chromium: every page in light and dark at three widths with pictures, a revocation over three servers and etcd, and
# a search of 100,000 certificates; ten minutes or so: make console-runs PICTURES=directory
console-runs: PICTURES = pictures
console-runs: .venv/.installed-dev
	scripts/system-packages
	mkdir -p "$(PICTURES)"
	ORCHID_SCREENSHOTS="$(PICTURES)" $(BIN)/python -m pytest -v -s -n 0 tests/e2e/test_console.py tests/e2e/test_served_console.py tests/e2e/console_runs.py $(ARGS)

# Two servers of an earlier commit are replaced under load, and started again; a minute or so:
# make upgrade FROM=<commit>
upgrade: .venv/.installed-dev
	@test -n "$(FROM)" || { echo "FROM=<commit> names no version to upgrade from"; exit 2; }
	scripts/system-packages
	$(BIN)/python -m tests.upgrades.run "$(FROM)"

# What rights and credentials rest on is taken away, so many times, on one process and with workers;
# half an hour or so: make removals ROUNDS=10000
removals: .venv/.installed-dev
	$(BIN)/python -m tests.removals.run --rounds $(ROUNDS) --workers 1 $(ARGS)
	$(BIN)/python -m tests.removals.run --rounds $(ROUNDS) --workers 2 $(ARGS)

# Users with partial rights, thieves and what they do, on every store; invariants are checked from outside:
# make adversary MINUTES=10, or another version: make adversary ARGS='--checkout ../before --most 20'
adversary: .venv/.installed-dev
	scripts/system-packages
	$(BIN)/python -m tests.adversary.run --minutes $(MINUTES) $(ARGS)

# Input that nobody thought of, so many minutes in all: make fuzz MINUTES=10
# Then new examples for every property test, which the tests themselves repeat.
fuzz: .venv/.installed-dev
	$(BIN)/python -m tests.fuzz.run --minutes $(MINUTES) $(ARGS)
	ORCHID_HYPOTHESIS=search $(BIN)/python -m pytest -q -o faulthandler_timeout=0 -m hypothesis tests/unit tests/api tests/security

# Small mistakes in critical lines, one at a time, and whether the tests notice; half an hour or so.
# Mistakes that nobody chose: make mutants ARGS='--random 40 --seed 7 --in src/orchid/agent --minutes 20'
mutants: .venv/.installed-dev
	scripts/system-packages
	$(BIN)/python -m tests.mutants.run $(ARGS)

lock: .venv/.installed-dev
	scripts/lock $(ARGS)

# Wheel, sdist, manual pages and SBOM of the last commit, into dist/: the same commit gives the same bytes.
# Signed checksums: make dist MINISIGN_KEY=file
dist: export MINISIGN_KEY ?=
dist: setup
	scripts/dist

# The image of deploy/container, built from Debian's packages and started; as root, some minutes.
image:
	scripts/image $(ARGS)

# Manual pages from the same declarations as --help, into dist/man1.
man: setup
	$(BIN)/python scripts/man dist/man1

# A server of one's own, apart from this checkout: locked packages and Orchid in a venv at PREFIX.
install: setup
	$(PYTHON) -m venv "$(PREFIX)"
	"$(PREFIX)/bin/python" -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements/runtime.txt
	rm -rf .venv/wheel
	$(BIN)/python -m hatchling build -t wheel -d .venv/wheel
	"$(PREFIX)/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps --force-reinstall .venv/wheel/*.whl
	"$(PREFIX)/bin/python" scripts/man "$(PREFIX)/share/man/man1"
	@echo "installed $(PREFIX)/bin/orchid"

# The stamps make the second time quick; pip is looked for, because an interrupted venv lacks it.
.venv/.installed: requirements/build.txt requirements/runtime.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Orchid needs Python 3.11 or later; choose one with PYTHON=...")'
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(PIP) --require-hashes -r requirements/build.txt -r requirements/runtime.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q src  # as pip does for a package: else every start compiles it
	@touch $@

# The ledger is tested with a verifier that is not ours. It asks for Python 3.12, and runs on 3.11.
.venv/.installed-dev: .venv/.installed requirements/dev.txt requirements/verifier.txt
	$(PIP) --require-hashes -r requirements/dev.txt
	$(PIP) --require-hashes --no-deps --ignore-requires-python -r requirements/verifier.txt
	@touch $@
