# The C++ half: libtorch, gotorch's own C++ half, csrc and kernels.
#
# Sets NATIVE (the files that a link needs) and WITH_TORCH (the environment under which go commands build against them).

, := ,
quote = '$(subst ','\'',$1)'

# write_if_changed FILE,TEXT, to be eval'ed: brings FILE up to date while the makefile is read; its time changes only with
# its text. Targets that depend on FILE are remade when the text changes. GNU make 4.3 does not always take the newline off the
# end of a file longer than 200 bytes that it reads, hence strip.
define write_if_changed
ifneq ($$(strip $$(file <$1)),$$(strip $2))
$$(shell mkdir -p $(dir $1))
$$(file >$1,$2)
endif
endef

# ---- libtorch: the pinned wheels, unpacked into the cache, or the folder that LIBTORCH names ----

TORCH_NAME := libtorch-2.11.0-cu130
ifeq ($(LIBTORCH),)
TORCH := $(CACHE)/$(TORCH_NAME)/torch
TORCH_READY := $(CACHE)/$(TORCH_NAME)/wheels.json
GOMP := -lgomp
$(TORCH_READY): tools/libtorch.json
	$(Q)python3 tools/fetch_wheels.py $< $(CACHE) $(TORCH_NAME)
else
TORCH := $(abspath $(LIBTORCH))
ifeq ($(and $(wildcard $(TORCH)/include/ATen/ATen.h),$(wildcard $(TORCH)/lib/libtorch_cpu.so)),)
$(error LIBTORCH=$(LIBTORCH) is no libtorch: include/ATen/ATen.h or lib/libtorch_cpu.so is missing in it)
endif
TORCH_READY :=
# The OpenMP library that this libtorch carries, so that a process has one pool of threads and not two.
GOMP := $(or $(patsubst %,-l:%,$(notdir $(firstword $(wildcard $(TORCH)/lib/libgomp*.so*)))),-lgomp)
endif

# ---- how C++ is compiled ----

CXX := g++
CXX_VERSION := $(shell $(CXX) --version | head -n 1)
# The headers of libtorch count as system headers: their warnings are not ours, their times start no rebuild.
TORCH_INCLUDES := -isystem $(TORCH)/include -isystem $(TORCH)/include/torch/csrc/api/include
# -fopenmp: at::parallel_for is an inline OpenMP loop, which silently runs on one thread without it.
CXXFLAGS := -std=c++17 -O3 -fPIC -fopenmp -fvisibility=hidden -fvisibility-inlines-hidden -Wall -Wextra
# hnswlib, headers only, for approximate search: Debian's libhnswlib-dev, or the folder that HNSWLIB names; the program is
# built without where there is none.
HNSWLIB_FLAGS := $(if $(wildcard $(or $(HNSWLIB),/usr/include)/hnswlib/hnswlib.h),-DMEMPO_HNSWLIB $(if $(HNSWLIB),-isystem $(abspath $(HNSWLIB))))
INCLUDES := -Icsrc -Ikernels $(HNSWLIB_FLAGS)

# ---- csrc and kernels: one static archive ----

CPP_SOURCES := $(sort $(wildcard csrc/*.cpp kernels/*.cpp))
OBJECTS := $(CPP_SOURCES:%.cpp=$(BUILD)/obj/%.o)
ARCHIVE := $(BUILD)/lib/libmempo.a
$(eval $(call write_if_changed,$(BUILD)/compile-line,$(CXX_VERSION) $(CXXFLAGS) $(INCLUDES) $(TORCH_INCLUDES)))
$(eval $(call write_if_changed,$(BUILD)/object-list,$(OBJECTS)))

# A table of CUDA kernels is called only where this hash, of its declaration, is that of this program.
INTERFACE_FILES := kernels/cuda.h kernels/draw.h kernels/policy_loss.h
%/kernels/cuda_forms.o %/kernels/table.o: INTERFACE_FLAG = -DMEMPO_CUDA_INTERFACE='"$(shell cat $(INTERFACE_FILES) | sha256sum | cut -c 1-16)"'

$(BUILD)/obj/%.o: %.cpp $(BUILD)/compile-line | $(TORCH_READY)
	@mkdir -p $(@D)
	@echo "c++ $<"
	$(Q)$(CXX) $(CXXFLAGS) $(INTERFACE_FLAG) $(INCLUDES) $(TORCH_INCLUDES) -MMD -MP -c $< -o $@

$(ARCHIVE): $(OBJECTS) $(BUILD)/object-list
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)ar rcs $@ $(OBJECTS)

-include $(OBJECTS:.o=.d)

# ---- gotorch's C++ half, compiled from a copy out of the module cache (which is read-only) ----

GOTORCH := github.com/wangkuiyi/gotorch
GOTORCH_VERSION := $(shell awk '$$1 == "$(GOTORCH)" {print $$2} $$2 == "$(GOTORCH)" {print $$3}' go.mod)
GOTORCH_FLAGS := -std=c++17 -O2 -fPIC -w $(TORCH_INCLUDES)
GOTORCH_LIB := $(CACHE)/gotorch-$(shell echo $(call quote,$(GOTORCH_VERSION) $(CXX_VERSION) $(GOTORCH_FLAGS)) | sha256sum | cut -c 1-16)

$(GOTORCH_LIB)/libcgotorch.a: | $(TORCH_READY)
	$(Q)tools/build_gotorch.sh $(GOTORCH) $(GOTORCH_LIB) $(CXX) $(GOTORCH_FLAGS)

# gotorch links with -ltorch, and libtorch.so needs all of CUDA. This linker script of the same name, first on the search
# path, stands for the CPU half alone; libtorch_cuda.so is loaded at run time where a GPU is asked for.
LINKER_SCRIPT := $(BUILD)/ldscript/libtorch.so
$(LINKER_SCRIPT):
	@mkdir -p $(@D)
	@echo 'INPUT(-ltorch_cpu)' >$@

# ---- what the go command needs ----

NATIVE := $(ARCHIVE) $(GOTORCH_LIB)/libcgotorch.a $(LINKER_SCRIPT)

# The go command does not look into static archives: the hash of the sources in a macro makes it link and test anew. All
# files are hashed, so that no way of including one is missed.
SOURCES_HASH := $(shell find $(wildcard csrc kernels) -type f -not -path 'csrc/tests/*' | LC_ALL=C sort | xargs sha256sum $(BUILD)/compile-line | sha256sum | cut -c 1-16)

# Libraries are looked for in ../lib beside the program first, then with the program, then where it was linked (the kernels
# of CUDA in bin, for tests). With --disable-new-dtags that comes
# before LD_LIBRARY_PATH, where another libtorch may lie.
LINK_TORCH := -Wl,-rpath,$(TORCH)/lib -L$(TORCH)/lib -ltorch_cpu -lc10 $(GOMP) -lstdc++ -lm -ldl
WITH_TORCH = CGO_ENABLED=1 CGO_CPPFLAGS=-DMEMPO_SOURCES=$(SOURCES_HASH) CGO_LDFLAGS=$(call quote,-Wl$(,)--as-needed -Wl$(,)--disable-new-dtags \
	-L$(CURDIR)/$(BUILD)/ldscript -L$(CURDIR)/$(BUILD)/lib -L$(GOTORCH_LIB) -Wl$(,)-rpath$(,)$$ORIGIN/../lib:$$ORIGIN:$(CURDIR)/bin -lmempo $(LINK_TORCH))
$(eval $(call write_if_changed,$(BUILD)/go-settings,$(shell echo $(call quote,$(WITH_TORCH)) | sha256sum)))
