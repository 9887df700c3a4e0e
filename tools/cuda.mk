# CUDA: the kernels, compiled by the pinned nvcc, which needs no GPU.

NVCC_NAME := nvcc-13.0.88
NVCC_ROOT := $(CACHE)/$(NVCC_NAME)/nvidia/cu13
CUDA_SOURCES := $(sort $(wildcard kernels/*.cu))
CUDA_OBJECTS := $(CUDA_SOURCES:%.cu=$(BUILD)/cuda/%.o)
# Code for A100 (and by compatibility all of 8.x), H100 and H200, B100 and B200; PTX of the newest for what comes after, which
# the driver compiles at the first start.
CUDA_CODE := --generate-code=arch=compute_80,code=sm_80 --generate-code=arch=compute_90,code=sm_90 \
	--generate-code=arch=compute_100,code=[sm_100,compute_100]
NVCC_FLAGS := -std=c++17 -O3 $(CUDA_CODE) -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra -Werror all-warnings -Xptxas -v
$(eval $(call write_if_changed,$(BUILD)/nvcc-line,$(NVCC_FLAGS)))

$(CACHE)/$(NVCC_NAME)/wheels.json: tools/nvcc.json
	$(Q)python3 tools/fetch_wheels.py $< $(CACHE) $(NVCC_NAME)

$(BUILD)/cuda/%.o: %.cu $(BUILD)/nvcc-line | $(CACHE)/$(NVCC_NAME)/wheels.json
	@mkdir -p $(@D)
	@echo "nvcc $<"
	$(Q)$(NVCC_ROOT)/bin/nvcc $(NVCC_FLAGS) $(INTERFACE_FLAG) -MMD -MP -c $< -o $@ 2>$(@:.o=.log) || { cat $(@:.o=.log); exit 1; }

-include $(CUDA_OBJECTS:.o=.d)

# What ptxas says of registers, spills and memory is kept under version control.
PTXAS_REPORT := python3 tools/ptxas_report.py
PTXAS_LOGS = $(CUDA_OBJECTS:.o=.log)
.PHONY: kernels kernels-report
kernels: $(CUDA_OBJECTS) ## compile the CUDA kernels (no GPU needed) and compare what ptxas says of them with kernels/ptxas.txt
	$(Q)$(PTXAS_REPORT) check kernels/ptxas.txt $(PTXAS_LOGS)

kernels-report: $(CUDA_OBJECTS) ## accept what ptxas says of the CUDA kernels now
	$(Q)$(PTXAS_REPORT) write kernels/ptxas.txt $(PTXAS_LOGS)

# ---- libmempo_cuda.so, and the libraries of CUDA that libtorch_cuda.so needs ----

# What needs libtorch's CUDA headers is compiled by the C++ compiler, with CUDA's own headers from the wheels.
CUDA_CPP_OBJECTS := $(patsubst %.cpp,$(BUILD)/obj/%.o,$(sort $(wildcard csrc/cuda/*.cpp)))
$(CUDA_CPP_OBJECTS): TORCH_INCLUDES += -isystem $(NVCC_ROOT)/include
$(CUDA_CPP_OBJECTS): | $(CACHE)/$(NVCC_NAME)/wheels.json
-include $(CUDA_CPP_OBJECTS:.o=.d)

# libtorch_cuda.so is in the process before this library, and what that needs is not needed to link.
CUDA_LIBRARY := bin/libmempo_cuda.so
$(CUDA_LIBRARY): $(CUDA_OBJECTS) $(CUDA_CPP_OBJECTS)
	@mkdir -p $(@D)
	$(Q)$(CXX) -shared -Wl,-z,defs -Wl,--allow-shlib-undefined $^ -L$(TORCH)/lib -L$(NVCC_ROOT)/lib \
		-Wl,--as-needed -ltorch_cuda -lc10_cuda -ltorch_cpu -lc10 -l:libcudart.so.13 -o $@

# The pinned wheels of libtorch come with no part of CUDA but what the CPU needs. The rest is a folder of its own in the
# cache, and libtorch_cuda.so finds it through links beside libtorch. A libtorch that LIBTORCH names brings its own.
CUDA_READY :=
ifeq ($(LIBTORCH),)
CUDA_NAME := cuda-13.0.2
CUDA_READY := $(CACHE)/$(TORCH_NAME)/cuda-libraries

$(CACHE)/$(CUDA_NAME)/wheels.json: tools/cuda.json
	$(Q)python3 tools/fetch_wheels.py $< $(CACHE) $(CUDA_NAME)

# The folder of libtorch is replaced as a whole when its wheels change, and this file with it.
$(CUDA_READY): $(CACHE)/$(CUDA_NAME)/wheels.json | $(TORCH_READY)
	$(Q)cd $(CACHE)/$(CUDA_NAME) && for library in nvidia/*/lib/*; do \
		folder=$(CACHE)/$(TORCH_NAME)/$${library%/*}; \
		mkdir -p $$folder && ln -sfn ../../../../$(CUDA_NAME)/$$library $$folder/; \
	done
	@touch $@
endif

.PHONY: cuda
cuda: $(CUDA_LIBRARY) $(CUDA_READY) bin/mempo-train ## build for NVIDIA GPUs: CUDA's libraries (2.5 GB) and our kernels
