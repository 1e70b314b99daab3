# Every target does its own set-up: a machine with a Rust toolchain is enough.
SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Outside the checkout and shared by all of them: building RocksDB takes minutes, once a machine.
CACHE := $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/streaming-hub
export CARGO_TARGET_DIR ?= $(CACHE)/target
export PATH := $(PATH):$(HOME)/.cargo/bin

BIN := $(CARGO_TARGET_DIR)/debug

# Always all of the workspace: another selection is another set of features, and RocksDB would be
# built once for each.
ALL := --workspace --all-targets --locked
tests = $(foreach file,$(wildcard $(1)),--test $(basename $(notdir $(file))))
FAST_TESTS := $(call tests,tests/*.rs state/tests/*.rs simulation/tests/*.rs)
BROKER_TESTS := $(call tests,integration/tests/*.rs sinks/tests/*.rs)

.PHONY: help setup build fmt lint test deny demo up down bench sim chaos

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing on this machine, or say what and how
	@scripts/setup

build: setup ## build everything
	cargo build $(ALL)

fmt: ## format the code
	cargo fmt --all

lint: setup ## formatting and clippy, warnings are errors
	cargo fmt --all --check
	cargo clippy $(ALL) -- -D warnings

test: ## everything that must hold: lints, unit tests, licences, tests on a real broker
	@scripts/setup --java --sinks
	cargo fmt --all --check
	cargo clippy $(ALL) -- -D warnings
	cargo build $(ALL)
	cargo test --workspace --locked --lib --bins $(FAST_TESTS)
	scripts/deny
	scripts/kafka fetch --nodes 3
	cargo test --workspace --locked $(BROKER_TESTS) -- --test-threads=1

deny: ## licences, sources and known vulnerabilities of the dependencies
	scripts/deny

demo: build ## facts arrive as signed webhooks (DEMO_HOLD=1 keeps it running; SINKS=all: every kind)
	@[[ "$(SINKS)" != all ]] || scripts/setup --sinks
	SINKS="$(SINKS)" $(BIN)/demo

bench: build ## latency, throughput and memory, printed (DELIVERY=1, API=1, PULL=1, STORE=1: of those parts)
	$(BIN)/bench

sim: build ## the simulation: SEEDS=n runs from SEED=n on, STEPS=n each
	$(BIN)/sim

chaos: build ## kills, zombies and lost brokers for MINUTES=10 with SEED=n, then proof that all is there
	scripts/kafka fetch --nodes 3
	$(BIN)/chaos

up: build ## start broker and hub, and leave them running
	@scripts/up

down: ## stop what make up started
	@scripts/down
