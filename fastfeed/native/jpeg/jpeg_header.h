// Reads what comes before the pixels of a JPEG.
#pragma once

#include <cstddef>
#include <cstdint>

#include "image/header.h"

namespace fastfeed {

// Status::not_image for any other file.
Header read_jpeg_header(const uint8_t* data, size_t size);

// Whether the last scan of a JPEG ends, and nothing but entropy-coded data and restart markers is in it.
bool last_scan_ends(const uint8_t* data, size_t size);

}  // namespace fastfeed
