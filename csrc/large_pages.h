// Memory in large pages of the system.
#pragma once

#include <ATen/ATen.h>

namespace mempo {

// A tensor on the CPU whose memory the system is asked to map in large pages, where it has them: what is read in pieces that
// lie apart spends as long on finding addresses as on reading. Throws std::bad_alloc.
at::Tensor empty_in_large_pages(at::IntArrayRef sizes, at::ScalarType dtype);

}  // namespace mempo
