// Threads, CUDA at run time, memory figures.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <malloc.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/version.h>

#include <fstream>
#include <string>

#include "cuda_forms.h"
#include "guard.h"

using mempo::guarded;
using mempo::require;

namespace {

// One line of /proc/self/status such as "VmRSS:  123 kB", in bytes.
int64_t process_memory(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == key) {
      int64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  }
  return 0;
}

struct Silence : c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

const auto kWholeAllocator = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

}  // namespace

int mempo_runtime_init(int threads, mempo_error* error) {
  return guarded(error, [&] {
    require(threads >= 1, "threads must be at least 1");
    at::set_num_threads(threads);
    // Large tensors come and go at every step: memory that is kept needs no new pages each time.
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
  });
}

void mempo_cuda_driver(int* cuda, int* devices) {
  *cuda = *devices = 0;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return;
  const auto find = [&](auto* function, const char* name) { return reinterpret_cast<decltype(function)>(dlsym(driver, name)); };
  using Int = int(int*);
  using Flags = int(unsigned);
  Int* const version = find(static_cast<Int*>(nullptr), "cuDriverGetVersion");
  Int* const count = find(static_cast<Int*>(nullptr), "cuDeviceGetCount");
  Flags* const start = find(static_cast<Flags*>(nullptr), "cuInit");
  if (version == nullptr || count == nullptr || start == nullptr || version(cuda) != 0) return void(*cuda = 0);
  if (start(0) != 0 || count(devices) != 0) *devices = 0;
}

int mempo_cuda_load(const char* path, mempo_error* error) {
  return guarded(error, [&] {
    // Loading registers the CUDA backend. libtorch looks for one when it is first asked and keeps the answer, so
    // nothing may ask before.
    void* library = dlopen(path != nullptr ? path : "libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL);
    require(library != nullptr, std::string("libtorch_cuda.so cannot be loaded: ") + (library ? "" : dlerror()));
    require(at::globalContext().hasCUDART(), "libtorch_cuda.so was loaded too late: this process already works without CUDA");
    // Counting the GPUs for the first time warns where there are none, which callers say in their own words.
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard quiet(&silence);
    at::detail::getCUDAHooks().deviceCount();
  });
}

int mempo_cuda_kernels_load(mempo_error* error) {
  return guarded(error, [&] {
    void* library = dlopen("libmempo_cuda.so", RTLD_NOW | RTLD_LOCAL);
    require(library != nullptr, std::string("the kernels of this program cannot be loaded: ") + (library ? "" : dlerror()));
    const auto table = reinterpret_cast<decltype(&mempo_cuda_kernels)>(dlsym(library, "mempo_cuda_kernels"));
    require(table != nullptr, "libmempo_cuda.so has no kernels");
    mempo::kernels::cuda::install(table(), c10::DeviceType::CUDA);
  });
}

int mempo_cuda_device_count(void) {
  int count = 0;
  mempo_error error;
  guarded(&error, [&] { count = at::detail::getCUDAHooks().deviceCount(); });
  return count;
}

int mempo_device_select(const char* device, mempo_error* error) {
  return guarded(error, [&] {
    const c10::Device where(mempo::present(device));
    if (where.is_cpu()) return;
    // Memory figures are asked for before the first tensor, which would do this.
    at::globalContext().lazyInitDevice(where.type());
    c10::impl::VirtualGuardImpl(where.type()).setDevice(where);
    // float32 is meant: neither the environment nor a default of libtorch makes it TensorFloat-32.
    at::globalContext().setAllowTF32CuBLAS(false);
    // cuDNN's attention, the default on some GPUs, makes a plan for each shape; here every row has its own.
    at::globalContext().setSDPUseCuDNN(false);
  });
}

const char* mempo_torch_version(void) {
  static const std::string version = [] {
    // Its bytes, from the highest, are major, minor and patch; TORCH_VERSION would be that of the headers.
    const uint64_t loaded = aoti_torch_abi_version();
    const auto byte = [&](int shift) { return std::to_string(loaded >> shift & 0xFF); };
    return byte(56) + "." + byte(48) + "." + byte(40);
  }();
  return version.c_str();
}

const char* mempo_torch_needed(void) { return TORCH_VERSION; }

int mempo_memory(const char* device, int64_t* current, int64_t* peak, mempo_error* error) {
  return guarded(error, [&] {
    const c10::Device where(device);
    if (where.is_cpu()) {
      *current = process_memory("VmRSS:");
      *peak = process_memory("VmHWM:");
      return;
    }
    const auto stats = at::getDeviceAllocator(where.type())->getDeviceStats(where.index());
    *current = stats.allocated_bytes[kWholeAllocator].current;
    *peak = stats.allocated_bytes[kWholeAllocator].peak;
  });
}

int mempo_memory_free(const char* device, int64_t* bytes, mempo_error* error) {
  return guarded(error, [&] {
    const c10::Device where(mempo::present(device));
    require(!where.is_cpu(), "the free memory of a machine is the operating system's to tell");
    *bytes = static_cast<int64_t>(at::getDeviceAllocator(where.type())->getMemoryInfo(where.index()).first);
  });
}

int mempo_memory_reset_peak(const char* device, mempo_error* error) {
  return guarded(error, [&] {
    const c10::Device where(device);
    if (where.is_cpu()) {
      std::ofstream("/proc/self/clear_refs") << "5";  // resets VmHWM
      return;
    }
    at::getDeviceAllocator(where.type())->resetPeakStats(where.index());
  });
}

int64_t mempo_live_handles(void) { return mempo::live_handles; }
