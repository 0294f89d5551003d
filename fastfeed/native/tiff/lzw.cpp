#include "tiff/lzw.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace fastfeed {
namespace {

constexpr uint32_t kClear = 256, kEnd = 257, kFirst = 258, kMost = 4096;  // codes
constexpr int kLeastBits = 9, kMostBits = 12;
constexpr size_t kAtOnce = 16;  // bytes that are copied, whatever the length of a string
static_assert(kBeyond >= 2 * kAtOnce, "what is written behind the last byte");

// Codes, the first bit of a byte first.
class CodeReader {
 public:
  CodeReader(const uint8_t* in, const uint8_t* end) : in_(in), end_(end) {}

  // False at the end.
  bool next(int bits, uint32_t& code) {
    if (held_ < bits && !refill(bits)) return false;
    held_ -= bits;
    code = uint32_t(buffer_ >> held_) & ((1u << bits) - 1);
    return true;
  }

 private:
  bool refill(int bits) {
    if (end_ - in_ >= 4) {
      buffer_ = buffer_ << 32 | uint32_t(in_[0]) << 24 | uint32_t(in_[1]) << 16 | uint32_t(in_[2]) << 8 | in_[3];
      in_ += 4, held_ += 32;
      return true;
    }
    for (; held_ < bits && in_ != end_; held_ += 8) buffer_ = buffer_ << 8 | *in_++;
    return held_ >= bits;
  }

  const uint8_t *in_, *end_;
  uint64_t buffer_ = 0;
  int held_ = 0;  // bits of buffer_ that have not been handed out
};

// Every byte, as the string of its own code.
constexpr std::array<uint8_t, kClear + kAtOnce> bytes() {
  std::array<uint8_t, kClear + kAtOnce> all{};
  for (size_t i = 0; i < kClear; ++i) all[i] = uint8_t(i);
  return all;
}
constexpr auto kBytes = bytes();

}  // namespace

// A code's string is the previous one and the first byte of this one, so it lies where both have been written.
bool decompress_lzw(const uint8_t* in, const uint8_t* end, uint8_t* out, size_t size) {
  struct String {
    const uint8_t* at;
    size_t length;
  } strings[kMost];
  for (size_t i = 0; i < kClear; ++i) strings[i] = {kBytes.data() + i, 1};
  CodeReader codes(in, end);
  uint32_t code = 0, free = kFirst;
  int bits = kLeastBits;
  if (!codes.next(bits, code) || code != kClear) return false;
  uint8_t* const out_end = out + size;
  size_t before = 0;  // length of the string before; 0 behind a clear code
  while (out != out_end) {
    if (!codes.next(bits, code) || code == kEnd) return false;
    if (code == kClear) {
      free = kFirst, bits = kLeastBits, before = 0;
      continue;
    }
    if (before) {
      if (free == kMost) return false;
      strings[free++] = {out - before, before + 1};
      if (free + 1 == 1u << bits && bits < kMostBits) ++bits;  // one code before it is needed
    }
    if (code >= (before ? free : kClear)) return false;
    const uint8_t* from = strings[code].at;
    const size_t length = std::min(strings[code].length, size_t(out_end - out));
    copy_bytes<kAtOnce>(out, from);
    for (size_t i = kAtOnce; i < length; i += kAtOnce) copy_bytes<kAtOnce>(out + i, from + i);
    if (before && code + 1 == free && length > before) out[before] = out[0];  // the string that was begun just now
    out += length, before = length;
  }
  return true;
}

}  // namespace fastfeed
