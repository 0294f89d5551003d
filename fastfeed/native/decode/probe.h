// Reads what comes before the pixels of a file of any format.
#pragma once

#include <cstddef>
#include <cstdint>

#include "image/header.h"

namespace fastfeed {

Header read_header(const uint8_t* data, size_t size);

}  // namespace fastfeed
