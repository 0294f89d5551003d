// Copies of what was decompressed before (RFC 1951: a length and a distance).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fastfeed {

constexpr size_t kBeyond = 48;  // bytes that repeat() may write beyond the last one

template <size_t kBytes>
inline void copy_bytes(uint8_t* to, const uint8_t* from) {
  uint8_t word[kBytes];
  std::memcpy(word, from, kBytes);
  std::memcpy(to, word, kBytes);
}

// Writes what lies `distance` bytes before `to`, and so on. Most matches are short: 32 bytes are copied whatever the length.
inline void repeat(uint8_t* to, size_t distance, size_t length) {
  const uint8_t *from = to - distance, *const end = to + length;
  if (distance >= 16) {
    copy_bytes<16>(to, from);
    copy_bytes<16>(to + 16, from + 16);
    for (to += 32, from += 32; to < end; to += 16, from += 16) copy_bytes<16>(to, from);
  } else if (distance == 1) {
    std::memset(to, *from, 32);
    if (length > 32) std::memset(to + 32, *from, length - 32);
  } else {
    const size_t step = std::min(distance, size_t(8));  // of eight bytes so many are known
    do {
      copy_bytes<8>(to, from);
      copy_bytes<8>(to + step, from + step);
      to += 2 * step, from += 2 * step;
    } while (to < end);
  }
}

}  // namespace fastfeed
