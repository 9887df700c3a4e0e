# CUDA: the kernels, compiled by the pinned nvcc, which needs no GPU.

NVCC_NAME := nvcc-13.0.88
NVCC_ROOT := $(CACHE)/$(NVCC_NAME)/nvidia/cu13
CUDA_SOURCES := $(sort $(wildcard kernels/*.cu))
CUDA_OBJECTS := $(CUDA_SOURCES:%.cu=$(BUILD)/cuda/%.o)
# Code for A100 (and by compatibility all of 8.x), H100 and H200, B100 and B200; PTX of the newest for what comes after, which
# the driver compiles at the first start.
CUDA_CODE := --generate-code=arch=compute_80,code=sm_80 --generate-code=arch=compute_90,code=sm_90 \
	--generate-code=arch=compute_100,code=[sm_100,compute_100]
NVCC_FLAGS := -std=c++17 -O3 $(CUDA_CODE) -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra -Werror all-warnings
$(eval $(call write_if_changed,$(BUILD)/nvcc-line,$(NVCC_FLAGS)))

$(CACHE)/$(NVCC_NAME)/wheels.json: tools/nvcc.json
	$(Q)python3 tools/fetch_wheels.py $< $(CACHE) $(NVCC_NAME)

$(BUILD)/cuda/%.o: %.cu $(BUILD)/nvcc-line | $(CACHE)/$(NVCC_NAME)/wheels.json
	@mkdir -p $(@D)
	@echo "nvcc $<"
	$(Q)$(NVCC_ROOT)/bin/nvcc $(NVCC_FLAGS) $(INTERFACE_FLAG) -MMD -MP -c $< -o $@

-include $(CUDA_OBJECTS:.o=.d)

.PHONY: kernels
kernels: $(CUDA_OBJECTS) ## compile the CUDA kernels (no GPU needed)
