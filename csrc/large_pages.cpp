#include "large_pages.h"

#include <sys/mman.h>

#include <new>

namespace mempo {

at::Tensor empty_in_large_pages(at::IntArrayRef sizes, at::ScalarType dtype) {
  constexpr size_t kLargePage = size_t{2} << 20;
  const size_t bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * at::elementSize(dtype), mapped = bytes + kLargePage;
  void* const whole = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (whole == MAP_FAILED) throw std::bad_alloc();
  const auto begin = (reinterpret_cast<uintptr_t>(whole) + kLargePage - 1) / kLargePage * kLargePage;
#if defined(MADV_HUGEPAGE)
  madvise(reinterpret_cast<void*>(begin), bytes, MADV_HUGEPAGE);  // advice: without it memory is the same, but slower
#endif
  return at::from_blob(reinterpret_cast<void*>(begin), sizes, [whole, mapped](void*) { munmap(whole, mapped); }, dtype);
}

}  // namespace mempo
