# Every target does its own set-up: a machine with a Rust toolchain is enough.
SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Outside the checkout and shared by all of them: building RocksDB takes minutes, once a machine.
CACHE := $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/streaming-hub
export CARGO_TARGET_DIR ?= $(CACHE)/target
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help setup build fmt lint test deny demo up down bench

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing on this machine, or say what and how
	@scripts/setup

build: setup ## build the hub
	cargo build --locked

fmt: ## format the code
	cargo fmt --all

lint: setup ## formatting and clippy, warnings are errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

test: ## everything that must hold: lints, unit tests, licences, tests on a real broker
	@scripts/setup --java
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo test --workspace --exclude streaming-hub-integration --locked
	scripts/deny
	scripts/kafka fetch --nodes 3
	cargo build --locked
	cargo test -p streaming-hub-integration --locked -- --test-threads=1

deny: ## licences, sources and known vulnerabilities of the dependencies
	scripts/deny

demo: build ## facts on a real broker arrive as signed webhooks (DEMO_HOLD=1 keeps it running)
	cargo run -q -p streaming-hub-integration --bin demo --locked

bench: build ## latency, throughput and memory, printed
	cargo run -q -p streaming-hub-integration --bin bench --locked

up: build ## start broker and hub, and leave them running
	@scripts/up

down: ## stop what make up started
	@scripts/down
