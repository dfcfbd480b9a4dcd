# One door: every target does its own set-up. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Extra pip arguments, e.g. PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
# to get the CPU build of torch for the test set on a machine without a GPU.
PIP_ARGS ?=
PYTEST_ARGS ?=
PROTOS := $(shell find protos/nianlun -name '*.proto' 2>/dev/null | sort)

# Compile-time noise and downloads have no place in tests and demos.
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false
export PYTHONUNBUFFERED := 1

.PHONY: help venv proto demo serve test lint format types bench bench-embed bench-search \
	bench-memory bench-chat chaos-memory test-java test-ts test-docker check-images lock-images docs \
	docs-config check-protos clean distclean

help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# ---- set-up ------------------------------------------------------------------------------------
$(BIN)/python:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "nianlun needs Python 3.11 or newer; found: $$("$(PYTHON)" --version 2>&1 || echo none)."; \
	  echo "Install it, or name it: make PYTHON=/path/to/python3.12 <target>"; exit 1; }
	@"$(PYTHON)" -m venv $(VENV) || { \
	  rm -rf $(VENV); echo "Could not make a virtual environment; on Debian: apt install python3-venv"; exit 1; }
	@# The pip that comes with older Pythons needs twice the time to resolve.
	@$(PIP) install --quiet $(PIP_ARGS) --upgrade 'pip>=25' || true

# The light set: no torch. Stubs need protoc, hence `proto`.
$(VENV)/.light: pyproject.toml | $(BIN)/python
	@echo "installing the light set into $(VENV) ..."
	@$(PIP) install --quiet --no-compile $(PIP_ARGS) --editable '.[gateway,proto]'
	@touch $@

# The test set: model stack and tools.
$(VENV)/.test: $(VENV)/.light
	@echo "installing the test set into $(VENV) ..."
	@$(PIP) install --quiet --no-compile $(PIP_ARGS) --editable '.[gateway,ingest,proto,dev,deploy,mcp,docs,embedder-torch,flag]'
	@touch $@

protos/gen/.stamp: $(PROTOS) | $(VENV)/.light
	@echo "generating stubs into protos/gen ..."
	@mkdir -p protos/gen
	@rm -rf protos/gen.new && mkdir -p protos/gen.new
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc -I protos \
	  --python_out=protos/gen.new --grpc_python_out=protos/gen.new \
	  --mypy_out=quiet:protos/gen.new --mypy_grpc_out=quiet:protos/gen.new $(PROTOS)
	@rm -rf protos/gen/nianlun && mv protos/gen.new/nianlun protos/gen/nianlun && rm -rf protos/gen.new
	@touch $@

venv: $(VENV)/.light ## Make .venv with the light set (no torch)

proto: protos/gen/.stamp ## Generate the Python stubs, when a contract changed

# ---- run ---------------------------------------------------------------------------------------
demo: $(VENV)/.light protos/gen/.stamp ## The whole path on real input: ingest, remember, answer, check
	@$(BIN)/python -m services.local.demo

serve: $(VENV)/.light protos/gen/.stamp ## Start the stack and keep it up (Ctrl-C drains)
	@$(BIN)/python -m services.local serve

# ---- check -------------------------------------------------------------------------------------
lint: $(VENV)/.test protos/gen/.stamp check-protos ## Ruff, format, types, contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict

types: $(VENV)/.test protos/gen/.stamp ## mypy --strict alone
	@$(BIN)/mypy --strict

format: $(VENV)/.test ## Format and fix what can be fixed
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

# Breaking changes are judged against the main branch, where it has contracts.
check-protos: $(VENV)/.test
	@$(BIN)/buf lint
	@for ref in main origin/main; do \
	  if git rev-parse --verify --quiet "$$ref:protos/nianlun" >/dev/null 2>&1; then \
	    old="$$(mktemp -d)"; trap 'rm -rf "$$old"' EXIT; \
	    git archive "$$ref" buf.yaml protos/nianlun | tar -x -C "$$old"; \
	    $(BIN)/buf breaking --against "$$old"; exit 0; \
	  fi; done; echo "no contracts on main yet: nothing to compare with"

test: lint ## Lint, types, contracts, and all tests
	@$(BIN)/python -m pytest tests/unit tests/contract tests/integration tests/e2e $(PYTEST_ARGS)

test-java: $(VENV)/.test protos/gen/.stamp ## The Java client against the real stack
	@$(BIN)/python -m pytest -m java tests $(PYTEST_ARGS)

test-ts: $(VENV)/.test protos/gen/.stamp ## The TypeScript client against the real stack (Node 20.19 or newer)
	@$(BIN)/python -m pytest -m typescript tests $(PYTEST_ARGS)

# Without a container engine: the Dockerfile is carried out in folders, every start command is run.
# It installs what the images hold, so it takes some minutes.
check-images: $(VENV)/.test protos/gen/.stamp ## Dockerfile, compose files and chart, and every container's start command
	@$(BIN)/python -m pytest tests/contract/test_images.py tests/contract/test_compose.py \
	  tests/contract/test_chart.py tests/contract/test_observability.py tests/images $(PYTEST_ARGS)

# With a Docker daemon: builds the images, starts them by compose, drives them from outside.
test-docker: $(VENV)/.test protos/gen/.stamp ## The images, built and run by Docker (skipped without a daemon)
	@$(BIN)/python -m pytest -m docker tests/docker $(PYTEST_ARGS)

lock-images: $(VENV)/.test protos/gen/.stamp ## Write deploy/constraints.txt from what the packages resolve to today
	@$(BIN)/python -m tests.support.layout

# ---- measure -----------------------------------------------------------------------------------
bench: bench-embed bench-search bench-memory bench-chat ## All benchmarks (QUICK=1 for short runs)

# A peer of its own environment: it needs another major version of transformers.
.venv-infinity/.done: benchmarks/embed/peers.txt | $(BIN)/python
	@echo "installing infinity-emb, a peer of the embed bench, into .venv-infinity ..."
	@test -x .venv-infinity/bin/python || "$(PYTHON)" -m venv .venv-infinity
	@if .venv-infinity/bin/python -m pip --disable-pip-version-check install --quiet $(PIP_ARGS) -r $<; then \
	  touch $@; else echo "infinity-emb could not be installed: it is left out"; fi

bench-embed: $(VENV)/.test protos/gen/.stamp .venv-infinity/.done ## Speed of the embedder
	@$(BIN)/python -m benchmarks.embed

# Peers get an environment of their own. Without a package index the bench names them as missing.
.venv-peers/.search: benchmarks/search/peers.txt | $(BIN)/python
	@echo "installing the peers of the search bench into .venv-peers ..."
	@test -x .venv-peers/bin/python || "$(PYTHON)" -m venv .venv-peers
	@if .venv-peers/bin/python -m pip --disable-pip-version-check install --quiet -r $<; then \
	  touch $@; else echo "the peers could not be installed: they are left out"; fi

bench-search: $(VENV)/.test protos/gen/.stamp .venv-peers/.search ## Speed and quality of search
	@$(BIN)/python -m benchmarks.search

.venv-peers-memory/.installed: benchmarks/memory/peers.txt | $(BIN)/python
	@echo "installing the peers of the memory bench into .venv-peers-memory ..."
	@test -x .venv-peers-memory/bin/python || "$(PYTHON)" -m venv .venv-peers-memory
	@if .venv-peers-memory/bin/python -m pip --disable-pip-version-check install --quiet -r $<; then \
	  touch $@; else echo "the peers could not be installed: they are left out"; rm -rf .venv-peers-memory; fi

bench-memory: $(VENV)/.test protos/gen/.stamp .venv-peers-memory/.installed ## Speed, recall and safety of memory, beside mem0 and LangGraph
	@$(BIN)/python -m benchmarks.memory

bench-chat: $(VENV)/.test protos/gen/.stamp ## Speed and tokens of whole chats
	@$(BIN)/python -m benchmarks.chat

chaos-memory: $(VENV)/.test protos/gen/.stamp ## Kill workers and the database under load; count what is lost
	@$(BIN)/python -m benchmarks.chaos_memory

# ---- documents ---------------------------------------------------------------------------------
docs-config: $(VENV)/.light protos/gen/.stamp ## Write docs/configuration.md, README's table of RPCs and the measured tables
	@$(BIN)/nianlun config docs --write docs/configuration.md
	@$(BIN)/python -m services.cli.rpc_table --write README.md
	@$(BIN)/python -m tools.docs.measured

docs: $(VENV)/.light protos/gen/.stamp ## Build the documentation site into site/
	@$(BIN)/python -c 'import material' 2>/dev/null || \
	  $(PIP) install --quiet --no-compile $(PIP_ARGS) --editable '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs --quiet build --strict
	@echo "site/index.html"

clean: ## Remove what was generated (stubs, caches, local data), keep .venv
	@if [ -d .nianlun ] && [ -x $(BIN)/python ]; then $(BIN)/python -m services.local stop || true; fi
	@rm -rf protos/gen .nianlun build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@rm -rf clients/typescript/dist clients/typescript/src/gen clients/java/target
	@find services clients tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## Remove .venv and node_modules too
	@rm -rf $(VENV) clients/typescript/node_modules
