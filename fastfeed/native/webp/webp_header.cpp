#include <cstring>

#include "image/exif.h"
#include "webp/webp.h"

#ifdef FASTFEED_WEBP
#include <webp/decode.h>
#endif

namespace fastfeed {
namespace {

constexpr size_t kHead = 12, kChunkHead = 8;  // "RIFF", size, "WEBP"; name, size
constexpr uint8_t kExifFlag = 8, kAlphaFlag = 16;  // of a VP8X chunk: without them libwebp ignores EXIF and ALPH

uint32_t number(const uint8_t* p) { return p[0] | uint32_t(p[1]) << 8 | uint32_t(p[2]) << 16 | uint32_t(p[3]) << 24; }

bool is(const uint8_t* name, const char* other) { return std::memcmp(name, other, 4) == 0; }

// Calls each(name, content, size) for every chunk, until it returns false. False as well where the file ends early.
template <class Each>
bool chunks(const uint8_t* data, size_t size, const Each& each) {
  const size_t all = number(data + 4);
  if (all > size - kChunkHead) return false;
  const size_t end = kChunkHead + all;
  for (size_t at = kHead; at < end;) {
    if (end - at < kChunkHead) return false;
    const size_t length = number(data + at + 4);
    if (length > end - at - kChunkHead) return false;
    if (!each(data + at, data + at + kChunkHead, length)) return false;
    at += kChunkHead + length + length % 2;
  }
  return true;
}

}  // namespace

bool is_webp(const uint8_t* data, size_t size) {
  return size >= kHead && is(data, "RIFF") && is(data + 8, "WEBP");
}

Header read_webp_header(const uint8_t* data, size_t size) {
  Header header;
  header.format = Format::webp;
  header.status = Status::unsupported_format;
#ifdef FASTFEED_WEBP
  int frames = 0;
  const bool extended = size > kHead + kChunkHead && is(data + kHead, "VP8X");
  const uint8_t flags = extended ? data[kHead + kChunkHead] : 0;
  bool exif = false;
  const bool whole = chunks(data, size, [&](const uint8_t* name, const uint8_t* content, size_t length) {
    if (is(name, "ANIM") || is(name, "ANMF")) return false;
    if (is(name, "VP8 ") || is(name, "VP8L")) return ++frames == 1;
    if (is(name, "ALPH") && flags & kAlphaFlag && frames) return false;  // it belongs before the picture
    if (is(name, "EXIF") && flags & kExifFlag && !exif) {
      header.orientation = exif_orientation(content, length).value;
      exif = true;
    }
    return true;
  });
  if (!whole || frames != 1) return header;
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data, size, &features) != VP8_STATUS_OK || features.has_animation) return header;
  if (features.format != 1 && features.format != 2) return header;
  header.height = features.height, header.width = features.width;
  header.components = 3, header.precision = 8;
  header.lossless = features.format == 2;
  header.color = features.has_alpha && (header.lossless || flags & kAlphaFlag) ? 6 : 2;
  header.status = Status::ok;
#else
  (void)data, (void)size;
#endif
  return header;
}

size_t webp_bytes(const Header& header, int denominator) {
  const size_t pixels = size_t(header.height) * size_t(header.width);
  const size_t halves = header.lossless ? 2 * (4 + 4) : header.color == 6 ? 2 * (4 + 1) : denominator > 1 ? 3 : 6;
  return pixels * halves / 2;  // the result, and what the decoder keeps of its own
}

std::string libwebp_version() {
#ifdef FASTFEED_WEBP
  const int version = WebPGetDecoderVersion();
  return std::to_string(version >> 16) + "." + std::to_string(version >> 8 & 255) + "." + std::to_string(version & 255);
#else
  return "";
#endif
}

}  // namespace fastfeed
