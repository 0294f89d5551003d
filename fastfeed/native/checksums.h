// Checksums of what shard files hold.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastfeed {

uint32_t crc32(const uint8_t* data, size_t size);   // as zlib
uint32_t crc32c(const uint8_t* data, size_t size);  // Castagnoli's polynomial, as TFRecords have it

}  // namespace fastfeed
