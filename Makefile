# mempo-train: `make` builds bin/mempo-train, `make test` runs the tests, `make help` lists the rest.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += --jobs=$(shell nproc)
endif
ifeq ($(shell command -v go),)
$(error go is not on the PATH; the version wanted is in go.mod)
endif

# Downloads, libtorch, the lint tools and test models lie outside the tree, shared by all checkouts.
CACHE := $(or $(MEMPO_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/mempo-train)
BUILD := build
# `make V=1` shows the commands.
Q := $(if $(V),,@)

.PHONY: all
all: bin/mempo-train

include tools/native.mk
include tools/cuda.mk
include tools/checks.mk

# Every file that can end up in the program (Go sources, embedded files) is a prerequisite, and so is the list of them:
# a deleted file counts as a change.
INPUTS := $(sort $(shell find . \( -name .git -o -name testdata -o -path ./$(BUILD) -o -path ./bin -o -path ./runs -o -path ./docs -o -path ./tools \
	-o -path ./csrc -o -path ./kernels \) -prune -o -type f -not -name '*_test.go' -not -name '*.md' -not -name '.*' -not -name '*.tmp' -print))
$(eval $(call write_if_changed,$(BUILD)/inputs,$(INPUTS)))

bin/mempo-train: $(INPUTS) $(BUILD)/inputs $(BUILD)/go-settings $(NATIVE)
	@echo "go build $@"
	$(Q)$(WITH_TORCH) go build -o $@ .
	@touch $@

include tools/quickstart.mk
include tools/gpu.mk
include tools/image.mk

# The same step in PyTorch and transformers, from the shared folder; as in `make bench-peers PEER_OPTIONS="update --rounds 5"`.
PEERS := $(CACHE)/peers/venv
$(PEERS)/complete: | $(SHARED)/peers/requirements.txt
	$(Q)python3 -m venv $(PEERS)
	$(Q)$(PEERS)/bin/pip install --quiet -r $(SHARED)/peers/requirements.txt
	@touch $@

.PHONY: bench-peers
bench-peers: bin/mempo-train $(PEERS)/complete $(SMOLLM2)/complete ## time a step and its stages beside the same in PyTorch
	$(PEERS)/bin/python tools/bench_peers.py --peers $(SHARED)/peers --model $(SMOLLM2) $(PEER_OPTIONS)

# The retrieval service beside one of the Search-R1 kind; as in `make bench-retrieve RETRIEVE_OPTIONS="--rows 100000"`.
RETRIEVE_PEER := $(CACHE)/peers/retrieve-$(shell sha256sum tools/bench_retrieve.txt | cut -c1-16)
$(RETRIEVE_PEER)/complete:
	$(Q)python3 -m venv $(RETRIEVE_PEER)
	$(Q)$(RETRIEVE_PEER)/bin/pip install --quiet -r tools/bench_retrieve.txt
	@touch $@

.PHONY: bench-retrieve
bench-retrieve: bin/mempo-train $(RETRIEVE_PEER)/complete ## time the retrieval service beside faiss behind FastAPI
	$(RETRIEVE_PEER)/bin/python tools/bench_retrieve.py $(RETRIEVE_OPTIONS)

# What a run of adapters leaves, loaded by PEFT and transformers; PEFT stands beside the packages of the peers.
PEFT := $(CACHE)/peers/peft-$(shell sha256sum tools/check_lora.txt | cut -c1-16)
$(PEFT)/complete: $(PEERS)/complete
	$(Q)python3 -m venv $(PEFT)
	$(Q)cd $(PEERS)/lib/python*/site-packages && pwd >"$$(echo $(PEFT)/lib/python*/site-packages)/peers.pth"
	$(Q)$(PEFT)/bin/pip install --quiet --no-deps -r tools/check_lora.txt
	@touch $@

LORA_CHECK := $(BUILD)/lora
.PHONY: check-lora
check-lora: bin/mempo-train $(PEFT)/complete $(EXAMPLE)/model/model.safetensors ## train adapters for two steps and load them in PEFT and transformers
	@rm -rf $(LORA_CHECK)
	$(Q)bin/mempo-train tools/example/run.toml --set run.dir=$(LORA_CHECK) --set run.steps=2 --set lora.rank=4 --set lora.alpha=8
	$(PEFT)/bin/python tools/check_lora.py $(EXAMPLE)/model $(LORA_CHECK)/checkpoints/step_000002 bin/mempo-train

.PHONY: env
env: $(NATIVE) ## print the settings under which plain go commands work: eval "$$(make -s env)"
	@echo $(call quote,export $(WITH_TORCH) $(WITH_SHARED))

.PHONY: clean
clean: ## remove what was built here (the cache stays)
	rm -rf $(BUILD) bin

.PHONY: help
help: ## list the targets
	@echo "all              build bin/mempo-train (the default)"
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | sed 's/\$$\$$/$$/' | sort | awk -F'\t' '{printf "%-16s %s\n", $$1, $$2}'
