#include "guard.h"

#include <c10/util/Exception.h>

#include <cstdio>
#include <new>

namespace mempo {

std::atomic<int64_t> live_handles{0};

namespace {

int fail(mempo_error* error, int code, const std::string& message) {
  if (error != nullptr) {
    error->code = code;
    // The first line says what happened; what follows is for people who debug libtorch.
    std::snprintf(error->message, sizeof(error->message), "%s", message.substr(0, message.find('\n')).c_str());
  }
  return code;
}

bool speaks_of_memory(const std::string& text) {
  const auto holds = [&](const char* words) { return text.find(words) != std::string::npos; };
  return holds("out of memory") || holds("can't allocate memory") || holds("CUBLAS_STATUS_ALLOC_FAILED");
}

}  // namespace

int guarded(mempo_error* error, const std::function<void()>& body) {
  try {
    body();
    return MEMPO_OK;
  } catch (const InvalidArgument& e) {
    return fail(error, MEMPO_INVALID, e.what());
  } catch (const std::bad_alloc& e) {
    return fail(error, MEMPO_OUT_OF_MEMORY, e.what() == std::string("std::bad_alloc") ? "out of memory" : e.what());
  } catch (const c10::OutOfMemoryError& e) {
    return fail(error, MEMPO_OUT_OF_MEMORY, e.what_without_backtrace());
  } catch (const c10::Error& e) {
    const std::string text = e.what_without_backtrace();
    return fail(error, speaks_of_memory(text) ? MEMPO_OUT_OF_MEMORY : MEMPO_DEVICE, text);
  } catch (const std::exception& e) {
    return fail(error, MEMPO_INTERNAL, e.what());
  } catch (...) {
    return fail(error, MEMPO_INTERNAL, "unknown C++ exception");
  }
}

}  // namespace mempo
