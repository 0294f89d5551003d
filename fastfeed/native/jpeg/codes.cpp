#include "jpeg/codes.h"

#include <cstring>

#include "jpeg/bits.h"

namespace fastfeed {

bool Codes::set(const JHUFF_TBL& table, bool ac) {
  if (ready_ && ac == ac_ && !std::memcmp(bits_, table.bits, sizeof bits_) &&
      !std::memcmp(symbols_, table.huffval, sizeof symbols_))
    return true;  // most files of a kind have the same tables
  ready_ = false, ac_ = ac;
  std::memcpy(bits_, table.bits, sizeof bits_);
  std::memcpy(symbols_, table.huffval, sizeof symbols_);
  std::memset(step, 0, sizeof step);
  std::memset(leap, 0, sizeof leap);
  int code = 0, used = 0;
  for (int length = 1; length <= 16; ++length, code <<= 1) {
    offset_[length] = used - code;
    last_[length] = bits_[length] ? code + bits_[length] - 1 : -1;
    if (code + bits_[length] > 1 << length || used + bits_[length] > 256) return false;
    for (int i = 0; i < bits_[length]; ++i, ++code, ++used) {
      const int symbol = symbols_[used], size = ac ? symbol & 15 : symbol;
      const int zeros = !ac ? 0 : !size && symbol != 0xF0 ? kEnd + (symbol >> 4) : symbol >> 4;
      if (!ac && size > 11) return false;  // libjpeg has its own view of larger ones
      if (length > kLook) continue;
      const int free = kLook - length;
      for (int rest = 0; rest < 1 << free; ++rest) {
        int32_t& entry = step[code << free | rest];
        entry = length | zeros << 8 | size * 65536;
        if (size > free) continue;
        const int value = size ? extend(unsigned(rest) >> (free - size), size) : 0;
        entry = kWhole | (length + size) | zeros << 8 | value * 65536;
      }
    }
  }
  for (unsigned start = 0; ac && start < 1u << kLook; ++start) pair[start] = pair_at(start);
  for (unsigned start = 0; ac && start < 1u << kLook; ++start) {
    int bits = 0, passed = 0;
    bool end = false;
    while (!end) {
      const int32_t entry = step[start << bits & ((1u << kLook) - 1)];
      if (!(entry & kWhole) || bits + (entry & 0x7F) > kLook) break;
      const int zeros = entry >> 8 & 0xFF;
      bits += entry & 0x7F;
      end = zeros >= kEnd;
      if (!end) passed += zeros + 1;
    }
    leap[start] = uint32_t(bits | passed << 8 | end << 16);
  }
  return ready_ = true;
}

Codes::Pair Codes::pair_at(unsigned start) const {
  Pair pair{};
  int bits = 0, passed = 0;
  for (int i = 0; i < 2; ++i) {
    const int32_t entry = step[start << bits & ((1u << kLook) - 1)];
    if (!(entry & kWhole) || bits + (entry & 0x7F) > kLook) break;
    const int zeros = entry >> 8 & 0xFF;
    bits += entry & 0x7F;
    pair.bits = uint8_t(bits);
    if (zeros >= kEnd) {  // alone, it sets the next coefficient to 0, which it is
      pair.passed = kEnded;
      break;
    }
    for (int j = i; j < 2; ++j) pair.at[j] = uint8_t(passed + zeros), pair.value[j] = int16_t(entry >> 16);
    passed += zeros + 1;
    pair.passed = uint8_t(passed);
  }
  return pair;
}

Codes::Long Codes::find(uint32_t next16) const {
  for (int length = 1; length <= 16; ++length) {
    const int code = int(next16 >> (16 - length));
    if (last_[length] >= code) return {symbols_[code + offset_[length]], length};
  }
  return {0, 0};
}

}  // namespace fastfeed
