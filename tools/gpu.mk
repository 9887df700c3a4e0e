# The check of a GPU: programs, golden numbers and a script in one folder, small enough to be carried to a machine with a
# GPU and torch's libraries but without Go.

GPU := $(BUILD)/gpu
GPU_LIMIT := 64# MiB

# A small random model, a corpus and questions, all made up; the model's weights are written last.
EXAMPLE := $(BUILD)/example
$(EXAMPLE)/model/model.safetensors: $(wildcard tools/example/*.go)
	$(Q)go run ./tools/example $(EXAMPLE)

$(GPU)/bin/mempo-train: bin/mempo-train
	@mkdir -p $(@D)
	$(Q)strip -o $@ $<

# bin/mempo-train changes with everything that the engine consists of.
$(GPU)/bin/engine.test: bin/mempo-train $(wildcard engine/*_test.go)
	@mkdir -p $(@D)
	@echo "go test -c $@"
	$(Q)$(WITH_TORCH) go test -c -ldflags=-s -o $@ ./engine
	@touch $@

# Our kernels lie beside the program, where it looks for them.
$(GPU)/bin/libmempo_cuda.so: $(CUDA_LIBRARY)
	@mkdir -p $(@D)
	$(Q)strip -o $@ $<

# Every kernel on a device against its form on the CPU.
KERNELS_TEST := $(BUILD)/obj/csrc/tests/gpu/kernels.o
$(KERNELS_TEST): INCLUDES += -Icsrc/tests
-include $(KERNELS_TEST:.o=.d)
$(GPU)/bin/kernels.test: $(KERNELS_TEST) $(ARCHIVE)
	@mkdir -p $(@D)
	$(Q)$(CXX) -s -Wl,--as-needed -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN/../lib:$$ORIGIN' $^ $(LINK_TORCH) -o $@

# What is wrong with the comparisons themselves shows without a GPU.
.PHONY: test-kernels
test-kernels: $(GPU)/bin/kernels.test ## run what check-gpu does with kernels, on the CPU
	$(Q)LD_LIBRARY_PATH=$(TORCH)/lib $< --device cpu >$(BUILD)/kernels.log || { cat $(BUILD)/kernels.log; exit 1; }
	@tail -n 1 $(BUILD)/kernels.log

.PHONY: gpu-bundle check-gpu
gpu-bundle: $(EXAMPLE)/model/model.safetensors $(WORLD)/sft/model/config.json $(addprefix $(GPU)/bin/,mempo-train engine.test kernels.test libmempo_cuda.so) ## build what check-gpu needs into build/gpu
	@rm -rf $(addprefix $(GPU)/,testdata example world shapes lib torch nvidia results)
	@mkdir -p $(addprefix $(GPU)/,testdata example world)
	@cp -r testdata/golden $(GPU)/testdata/
	@cp -r $(EXAMPLE)/. tools/example/run.toml $(GPU)/example/
	@cp -r $(addprefix $(WORLD)/,data/corpus.jsonl data/train.jsonl data/eval.jsonl sft/model) configs/world/mempo.toml $(GPU)/world/
	@cp -r $(addprefix tools/gpu/,check_gpu.sh check_gpu.py parts.py report.py shapes) $(GPU)/
	@git describe --always --dirty >$(GPU)/commit 2>/dev/null || echo unknown >$(GPU)/commit
	@mib=$$(du -s --apparent-size --block-size=1M $(GPU) | cut -f 1); echo "$(GPU): $$mib MiB"; \
		test $$mib -le $(GPU_LIMIT) || { echo "$(GPU) must not exceed $(GPU_LIMIT) MiB"; exit 1; }

# As in `make check-gpu GPU_OPTIONS="--device cpu"`, which tries all of it out on small shapes. The libraries are those that the
# programs were linked with, whatever torch python3 has, and CUDA's beside them.
check-gpu: gpu-bundle $(if $(findstring --device cpu,$(GPU_OPTIONS)),,$(CUDA_READY)) ## check a GPU of this machine: kernels, golden numbers, a training run, speed (exit code 3 of the script: none here)
	$(Q)LIBTORCH=$(if $(LIBTORCH),$(TORCH)) $(GPU)/check_gpu.sh $(GPU_OPTIONS)
