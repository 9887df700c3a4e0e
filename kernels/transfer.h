// Copies between the host and a device through pinned memory, which a GPU reads and writes without a detour and while others
// compute. Nothing is copied where the device is the CPU.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace mempo::kernels {

// A tensor of the host on a device; the copy may still be under way, in the order of the device's work.
at::Tensor to_device(const at::Tensor& host, at::Device device);
// A tensor of a device on the host, when its copy has come.
at::Tensor to_host(const at::Tensor& x);

// Arrays that go to a device together, by one copy. Their addresses stay from when they are allocated on.
class Staging {
 public:
  // `count` elements of T, from `offset` in bytes.
  template <typename T>
  struct Section {
    int64_t offset = 0, count = 0;
  };

  // Before `allocate`.
  template <typename T>
  Section<T> add(int64_t count) {
    const Section<T> section{bytes_, count};
    bytes_ += (count * static_cast<int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    return section;
  }
  void allocate(at::Device device);

  template <typename T>
  T* host(const Section<T>& section) const {
    return reinterpret_cast<T*>(host_.mutable_data_ptr<uint8_t>() + section.offset);
  }
  template <typename T>
  T* device(const Section<T>& section) const {
    return reinterpret_cast<T*>(device_.mutable_data_ptr<uint8_t>() + section.offset);
  }
  // A section on the device as a tensor.
  at::Tensor tensor(const Section<int64_t>& section) const {
    return device_.narrow(0, section.offset, section.count * static_cast<int64_t>(sizeof(int64_t))).view(at::kLong);
  }

  void upload() { device_.copy_(host_, /*non_blocking=*/true); }
  // Copies a section back, and waits for it.
  template <typename T>
  void download(const Section<T>& section) {
    const int64_t bytes = section.count * static_cast<int64_t>(sizeof(T));
    host_.narrow(0, section.offset, bytes).copy_(device_.narrow(0, section.offset, bytes));
  }

 private:
  static constexpr int64_t kAlignment = 16;

  int64_t bytes_ = 0;
  at::Tensor host_, device_;
};

}  // namespace mempo::kernels
