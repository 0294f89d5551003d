// Checksums of what shard files hold.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastfeed {

// A fuzzer would only ever find wrong ones.
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
constexpr bool kVerified = false;
#else
constexpr bool kVerified = true;
#endif

uint32_t crc32(const uint8_t* data, size_t size);   // as zlib
uint32_t adler32(uint32_t sum, const uint8_t* data, size_t size);  // of more data; begins with 1
uint32_t crc32c(const uint8_t* data, size_t size);  // Castagnoli's polynomial, as TFRecords have it

}  // namespace fastfeed
