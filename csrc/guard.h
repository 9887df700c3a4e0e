// Turns every exception into a code and one sentence, so that none crosses into Go.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include "mempo.h"

namespace mempo {

// An argument of the caller's is wrong.
struct InvalidArgument : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void require(bool holds, const std::string& otherwise) {
  if (!holds) throw InvalidArgument(otherwise);
}

// A pointer that the caller must not leave null: a handle after its free, mostly.
template <typename T>
T* present(T* pointer) {
  require(pointer != nullptr, "a null pointer was given");
  return pointer;
}

// Runs `body`; returns MEMPO_OK or the code that fits the exception, with its text in `error`.
int guarded(mempo_error* error, const std::function<void()>& body);

// Counts models and sessions between their making and their freeing.
extern std::atomic<int64_t> live_handles;

struct CountedHandle {
  CountedHandle() { ++live_handles; }
  ~CountedHandle() { --live_handles; }
  CountedHandle(const CountedHandle&) = delete;
  CountedHandle& operator=(const CountedHandle&) = delete;
};

}  // namespace mempo
