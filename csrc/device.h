// Devices by name.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "guard.h"

namespace mempo {

inline c10::Device device_named(const char* name) {
  const std::string text = name == nullptr ? "" : name;
  require(text == "cpu" || text.rfind("cuda", 0) == 0, "unknown device '" + text + "'");
  return c10::Device(text);
}

}  // namespace mempo
