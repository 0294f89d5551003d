#include "batch/tf_record.h"

#include <cstring>

#include "system/checksums.h"

namespace fastfeed {
namespace {

constexpr size_t kTail = 4;  // bytes of the checksum
constexpr uint8_t kFirst = 0x0A, kSecond = 0x12, kThird = 0x1A;  // fields 1, 2 and 3 with a length
constexpr uint8_t kInteger = 0x08, kFloat = 0x0D;                // field 1, a number that is not packed

// Bytes of a message, from which fields are taken one by one.
struct Message {
  const uint8_t* at = nullptr;
  const uint8_t* end = nullptr;

  // The content of the field that begins here and has this tag; no bytes before it are left. False: there is none.
  bool take(uint8_t tag, Message& content) {
    if (at == end || *at != tag) return false;
    uint64_t size = 0;
    const uint8_t* p = at + 1;
    for (int shift = 0;; shift += 7, ++p) {
      if (p == end || shift > 28) return false;  // no record has 2**31 bytes
      size |= uint64_t(*p & 0x7F) << shift;
      if (*p < 0x80) break;
    }
    if (size > uint64_t(end - ++p)) return false;
    content = {p, p + size};
    at = content.end;
    return true;
  }
  // The same, of a field that is all there is.
  bool only(uint8_t tag, Message& content) { return take(tag, content) && at == end; }
};

// A varint that is all of these bytes.
bool integer(const Message& bytes, int64_t& number) {
  uint64_t value = 0;
  int shift = 0;
  for (const uint8_t* p = bytes.at; p != bytes.end && shift < 70; ++p, shift += 7) {
    value |= uint64_t(*p & 0x7F) << shift;
    if (*p >= 0x80) continue;
    number = int64_t(value);
    return p + 1 == bytes.end;
  }
  return false;
}

bool intact(const uint8_t* data, size_t size, uint32_t check) {
  const uint8_t* tail = data + size;
  const uint32_t stored = uint32_t(tail[0]) | uint32_t(tail[1]) << 8 | uint32_t(tail[2]) << 16 | uint32_t(tail[3]) << 24;
  if (check && check != stored) return false;
  const uint32_t crc = crc32c(data, size);
  return (crc >> 15 | crc << 17) + 0xA282EAD8 == stored;
}

}  // namespace

std::pair<const uint8_t*, size_t> image_in_record(const uint8_t* data, size_t size, uint32_t check,
                                                  const std::string& feature) {
  const std::pair<const uint8_t*, size_t> none{nullptr, 0};
  if (size < kTail || !intact(data, size - kTail, check)) return none;
  Message example{data, data + size - kTail}, features, entry, value;
  if (!example.only(kFirst, features)) return none;
  while (features.at != features.end) {
    if (!features.take(kFirst, entry) || entry.at == entry.end || *entry.at != kFirst) return none;
    if (size_t(entry.end - entry.at) < feature.size() || std::memcmp(entry.at, feature.data(), feature.size())) continue;
    entry.at += feature.size();
    if (!entry.only(kSecond, value)) return none;
  }
  Message list, image;
  if (!value.at || !value.only(kFirst, list) || !list.only(kFirst, image)) return none;
  return {image.at, size_t(image.end - image.at)};
}

FeatureValue single_value(std::string_view feature) {
  const auto* data = reinterpret_cast<const uint8_t*>(feature.data());
  Message message{data, data + feature.size()}, list;
  const uint8_t kind = feature.empty() ? 0 : *data;
  if ((kind != kFirst && kind != kSecond && kind != kThird) || !message.only(kind, list) || list.at == list.end) return {};
  Message value{list.at + 1, list.end};
  const uint8_t tag = *list.at;
  if (tag == kFirst ? !list.only(kFirst, value) : tag != (kind == kSecond ? kFloat : kInteger)) return {};
  const size_t size = size_t(value.end - value.at);
  if (kind == kFirst && tag == kFirst) return std::string_view(reinterpret_cast<const char*>(value.at), size);
  int64_t number = 0;
  if (kind == kThird && integer(value, number)) return number;
  float real = 0;
  if (kind != kSecond || size != sizeof real) return {};
  std::memcpy(&real, value.at, sizeof real);
  return real;
}

}  // namespace fastfeed
