#include "png/deflate_codes.h"

#include <array>
#include <cstddef>

namespace fastfeed {
namespace {

constexpr std::array<uint16_t, 29> kLengths{3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                            31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
constexpr std::array<uint8_t, 29> kLengthExtra{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                               2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
constexpr std::array<uint16_t, 30> kDistances{1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
                                              193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};

uint32_t reversed(uint32_t code, int length) {
  uint32_t result = 0;
  for (int i = 0; i < length; ++i) result |= (code >> i & 1) << (length - 1 - i);
  return result;
}

}  // namespace

uint32_t literal_entry(int symbol) {
  if (symbol < 256) return kLiteral | uint32_t(symbol) << 16;
  if (symbol == 256) return kEnd;
  const size_t i = size_t(symbol - 257);
  return i < kLengths.size() ? uint32_t(kLengths[i]) << 16 | kLengthExtra[i] : kInvalid;
}

uint32_t distance_entry(int symbol) {
  if (size_t(symbol) >= kDistances.size()) return kInvalid;
  return uint32_t(kDistances[size_t(symbol)]) << 16 | uint32_t(symbol < 4 ? 0 : symbol / 2 - 1);
}

uint32_t length_entry(int symbol) { return uint32_t(symbol) << 16; }

bool make_table(std::vector<uint32_t>& table, int bits, const uint8_t* lengths, int count, uint32_t (*entry)(int)) {
  std::array<int, 16> of_length{}, next{};
  for (int i = 0; i < count; ++i) ++of_length[lengths[i]];
  of_length[0] = 0;
  int used = 0, room = 1;
  for (size_t length = 1; length < 16; ++length) {
    used += of_length[length];
    room = 2 * room - of_length[length];
    if (room < 0) return false;
  }
  if (room > 0 && !(used == 0 || (used == 1 && of_length[1] == 1))) return false;
  for (size_t length = 1, code = 0; length < 16; ++length) {
    next[length] = int(code);
    code = (code + size_t(of_length[length])) << 1;
  }
  int longest = 15;
  while (longest > bits && !of_length[size_t(longest)]) --longest;
  const int further = longest - bits;  // all further tables are of this size: few codes are so long
  const size_t first = size_t(1) << bits;
  table.assign(first, kInvalid);
  for (int i = 0; i < count; ++i) {
    const int length = lengths[i];
    if (!length) continue;
    const uint32_t code = reversed(uint32_t(next[size_t(length)]++), length), made = entry(i);
    const uint32_t full = (made + uint32_t(length)) | uint32_t(length) << 8;
    if (length <= bits) {
      for (size_t at = code; at < first; at += size_t(1) << length) table[at] = full;
      continue;
    }
    uint32_t& pointer = table[code & (first - 1)];
    if (!(pointer & kFurther)) {
      const size_t begins = table.size();
      pointer = kFurther | uint32_t(begins) << 16 | uint32_t(further);
      table.resize(begins + (size_t(1) << further), kInvalid);
    }
    const size_t begins = table[code & (first - 1)] >> 16;
    for (size_t at = code >> bits; at < size_t(1) << further; at += size_t(1) << (length - bits)) table[begins + at] = full;
  }
  return true;
}

}  // namespace fastfeed
