#include "exif.h"

namespace fastfeed {
namespace {

uint32_t number(const uint8_t* p, int bytes, bool big) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= uint32_t(p[i]) << 8 * (big ? bytes - 1 - i : i);
  return value;
}

}  // namespace

uint8_t exif_orientation(const uint8_t* p, size_t n) {
  if (n < 8) return 1;
  const bool big = p[0] == 'M';
  if (!(big ? p[1] == 'M' : p[0] == 'I' && p[1] == 'I') || number(p + 2, 2, big) != 42) return 1;
  const size_t at = number(p + 4, 4, big);
  if (at > n || n - at < 2) return 1;
  const size_t entries = number(p + at, 2, big);
  for (size_t i = 0; i < entries && at + 2 + 12 * (i + 1) <= n; ++i) {
    const uint8_t* entry = p + at + 2 + 12 * i;
    if (number(entry, 2, big) != 0x0112) continue;
    const uint32_t value = number(entry + 8, number(entry + 2, 2, big) == 4 ? 4 : 2, big);
    return value >= 1 && value <= 8 ? uint8_t(value) : 1;
  }
  return 1;
}

}  // namespace fastfeed
