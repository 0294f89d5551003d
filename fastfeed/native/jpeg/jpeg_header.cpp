#include "jpeg/jpeg_header.h"

#include <cstring>

#include "image/exif.h"

namespace fastfeed {
namespace {

uint32_t number(const uint8_t* p) { return uint32_t(p[0]) << 8 | p[1]; }

Icc icc_kind(const uint8_t* p, size_t n) {
  static const char srgb[] = "sRGB";
  for (size_t i = 0; i + 4 <= n && i < 4096; ++i)
    if (std::memcmp(p + i, srgb, 4) == 0) return Icc::srgb;
  return Icc::other;
}

}  // namespace

Header read_jpeg_header(const uint8_t* data, size_t size) {
  Header header;
  if (size < 4 || data[0] != 0xFF || data[1] != 0xD8 || data[2] != 0xFF) return header;
  bool exif_seen = false, icc_seen = false, jfif = false, by_names = false;
  int transform = -1;  // Adobe's
  size_t at = 2;
  for (;;) {
    while (at < size && data[at] != 0xFF) ++at;  // libjpeg also continues at the next marker
    while (at < size && data[at] == 0xFF) ++at;  // fill bytes
    if (at >= size) break;
    const uint8_t marker = data[at++];
    if (marker == 0x00 || marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) continue;  // no length
    if (marker == 0xD9) break;
    if (size - at < 2) break;
    const size_t length = number(data + at);
    if (length < 2) {
      header.status = Status::corrupt;
      return header;
    }
    if (length > size - at) break;
    const uint8_t* body = data + at + 2;
    const size_t n = length - 2;
    at += length;
    if (marker == 0xDA) {
      header.status = header.sof ? Status::ok : Status::corrupt;
      header.rgb = header.components == 3 && !jfif && (transform < 0 ? by_names : transform == 0);
      if (n >= 1) header.together = body[0];
      if (header.sof && (header.height < 1 || header.width < 1)) header.status = Status::corrupt;
      return header;
    }
    if (marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC) {
      if (n < 6) break;
      if (header.sof) {  // decoders would differ on which one counts
        header.status = Status::corrupt;
        return header;
      }
      header.sof = marker;
      header.precision = body[0];
      header.height = int32_t(number(body + 1));
      header.width = int32_t(number(body + 3));
      header.components = body[5];
      for (size_t i = 0; i < 3 && 6 + 3 * (i + 1) <= n; ++i) header.sampling[i] = body[6 + 3 * i + 1];
      by_names = n >= 15 && body[6] == 'R' && body[9] == 'G' && body[12] == 'B';
    } else if (marker == 0xE0 && n >= 14 && std::memcmp(body, "JFIF", 5) == 0) {
      jfif = true;
    } else if (marker == 0xEE && n >= 12 && std::memcmp(body, "Adobe", 5) == 0) {
      transform = body[11];
    } else if (marker == 0xDD && n >= 2) {
      header.restart_interval = uint16_t(number(body));
    } else if (marker == 0xE1 && n >= 6 && std::memcmp(body, "Exif\0", 5) == 0) {
      const Orientation found = body[5] == 0 ? exif_orientation(body + 6, n - 6) : Orientation();
      if (!exif_seen) header.orientation = found.value;
      header.plain_exif = !exif_seen && found.plain;
      exif_seen = true;
    } else if (marker == 0xE2 && !icc_seen && n > 14 && std::memcmp(body, "ICC_PROFILE", 12) == 0) {
      header.icc = icc_kind(body + 14, n - 14);
      icc_seen = true;
    }
  }
  header.status = Status::truncated;
  return header;
}

bool last_scan_ends(const uint8_t* data, size_t size) {
  constexpr size_t kTail = 64;  // some writers pad behind the end marker
  bool pure = true, ends = false;  // of what lies behind the last start of a scan
  const uint8_t* const last = data + size;
  for (const uint8_t* at = data; last - at >= 2; ++at) {
    at = static_cast<const uint8_t*>(std::memchr(at, 0xFF, size_t(last - at - 1)));
    if (!at) break;
    const uint8_t code = at[1];
    if (code == 0xDA) pure = true;
    else if (code != 0x00 && code != 0xFF && (code < 0xD0 || code > 0xD9)) pure = false;
    if (code == 0xD9 && size_t(last - at) <= kTail) ends = true;
  }
  return pure && ends;
}

}  // namespace fastfeed
