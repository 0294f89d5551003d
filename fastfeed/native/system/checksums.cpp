#include "system/checksums.h"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace fastfeed {
namespace {

// Eight bytes at a time: Kounavis and Berry, "Novel table lookup-based algorithms for high-performance CRC generation".
class Slicing {
 public:
  explicit Slicing(uint32_t polynomial) {
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? polynomial : 0);
      tables_[0][i] = value;
    }
    for (size_t k = 1; k < 8; ++k)
      for (size_t i = 0; i < 256; ++i)
        tables_[k][i] = tables_[k - 1][i] >> 8 ^ tables_[0][tables_[k - 1][i] & 0xFF];
  }

  uint32_t operator()(uint32_t crc, const uint8_t* data, size_t size) const {
    for (; size >= 8; data += 8, size -= 8) {
      uint32_t next = 0;
      for (size_t k = 0; k < 8; ++k) next ^= tables_[7 - k][data[k] ^ (k < 4 ? crc >> (8 * k) & 0xFF : 0)];
      crc = next;
    }
    for (; size; ++data, --size) crc = crc >> 8 ^ tables_[0][(crc ^ *data) & 0xFF];
    return crc;
  }

 private:
  std::array<std::array<uint32_t, 256>, 8> tables_;
};

uint32_t castagnoli(uint32_t crc, const uint8_t* data, size_t size) {
  static const Slicing slicing(0x82F63B78);
  return slicing(crc, data, size);
}

#if defined(__x86_64__)
#if defined(__clang__) && __clang_major__ >= 14
__attribute__((target("sse4.2,crc32")))
#else
__attribute__((target("sse4.2")))
#endif
uint32_t by_instruction(uint32_t crc, const uint8_t* data, size_t size) {
  uint64_t wide = crc;
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = uint32_t(wide);
  for (; size; ++data, --size) crc = _mm_crc32_u8(crc, *data);
  return crc;
}
#elif defined(__ARM_FEATURE_CRC32)
uint32_t by_instruction(uint32_t crc, const uint8_t* data, size_t size) {
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    crc = __crc32cd(crc, word);
  }
  for (; size; ++data, --size) crc = __crc32cb(crc, *data);
  return crc;
}
#endif

}  // namespace

uint32_t crc32(const uint8_t* data, size_t size) {
  static const Slicing slicing(0xEDB88320);
  return ~slicing(~uint32_t(0), data, size);
}

uint32_t adler32(uint32_t sum, const uint8_t* data, size_t size) {
  constexpr size_t kBlock = 4096;  // sums of so many bytes stay below 2^32
  constexpr uint32_t kModulus = 65521;
  uint32_t low = sum & 0xFFFF, high = sum >> 16;
  while (size) {
    const uint32_t count = uint32_t(std::min(size, kBlock));
    uint32_t plain = 0, weighted = 0;
    for (uint32_t i = 0; i < count; ++i) plain += data[i], weighted += (count - i) * data[i];
    high = (high + count * low + weighted) % kModulus;
    low = (low + plain) % kModulus;
    data += count, size -= count;
  }
  return high << 16 | low;
}

uint32_t crc32c(const uint8_t* data, size_t size) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ~by_instruction(~uint32_t(0), data, size);
#elif defined(__ARM_FEATURE_CRC32)
  return ~by_instruction(~uint32_t(0), data, size);
#endif
  return ~castagnoli(~uint32_t(0), data, size);
}

}  // namespace fastfeed
