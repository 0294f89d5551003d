#include "image/exif.h"

#include <cstring>

namespace fastfeed {
namespace {

uint32_t number(const uint8_t* p, int bytes, bool big) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= uint32_t(p[i]) << 8 * (big ? bytes - 1 - i : i);
  return value;
}

}  // namespace

Orientation exif_orientation(const uint8_t* p, size_t n) {
  if (n >= 6 && std::memcmp(p, "Exif\0\0", 6) == 0) p += 6, n -= 6;
  if (n < 8) return {};
  const bool big = p[0] == 'M';
  if (!(big ? p[1] == 'M' : p[0] == 'I' && p[1] == 'I') || number(p + 2, 2, big) != 42) return {};
  const size_t at = number(p + 4, 4, big);
  if (at > n || n - at < 2) return {};
  const size_t entries = number(p + at, 2, big);
  for (size_t i = 0; i < entries && at + 2 + 12 * (i + 1) <= n; ++i) {
    const uint8_t* entry = p + at + 2 + 12 * i;
    if (number(entry, 2, big) != 0x0112) continue;
    const uint32_t type = number(entry + 2, 2, big), count = number(entry + 4, 4, big);
    const int bytes = type == 1 ? 1 : type == 3 ? 2 : type == 4 ? 4 : 0;  // BYTE, SHORT, LONG
    const uint32_t value = count == 1 ? number(entry + 8, bytes, big) : 0;
    return {uint8_t(value >= 1 && value <= 8 ? value : 1), type == 3 && count == 1};
  }
  return {};
}

}  // namespace fastfeed
