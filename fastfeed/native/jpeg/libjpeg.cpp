#include "jpeg/libjpeg.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <jpeglib.h>

#include "jpeg/jpeg_reader.h"
#include "jpeg/jpeg_header.h"
#include "jpeg/jpeg_encoder.h"

#define FASTFEED_TEXT_OF(x) #x
#define FASTFEED_TEXT(x) FASTFEED_TEXT_OF(x)

namespace fastfeed {
namespace {

// jpeg_entropy_decoder begins with start_pass and decode_mcu in all of them, jpeg_inverse_dct with start_pass, and
// jpeg_marker_reader is the same: jpegint.h of 2.0.0, 2.1.5, 3.0.4, 3.1.4.1, 3.2.0
constexpr int kOldest = 2000000, kNewest = 3002999;

struct Version {
  std::string text = "of unknown version";
  int number = 0;  // as libjpeg-turbo writes it: 2001005 is 2.1.5
};

bool is_known(int version) { return version >= kOldest && version <= kNewest; }

// Of its headers; or that in FASTFEED_LIBJPEG, such as 9.9.0, with which tests see what a version that is not known leads
// to. No other is taken from there.
Version version() {
  Version version;
#ifdef LIBJPEG_TURBO_VERSION
  version = {FASTFEED_TEXT(LIBJPEG_TURBO_VERSION), LIBJPEG_TURBO_VERSION_NUMBER};
#endif
  unsigned parts[3];
  const char* other = std::getenv("FASTFEED_LIBJPEG");
  if (other && std::sscanf(other, "%3u.%3u.%3u", &parts[0], &parts[1], &parts[2]) == 3)
    if (const int number = int(parts[0] * 1000000 + parts[1] * 1000 + parts[2]); !is_known(number)) {
      char text[16];
      std::snprintf(text, sizeof text, "%u.%u.%u", parts[0], parts[1], parts[2]);
      version = {text, number};
    }
  return version;
}

const Version& known_version() {
  static const Version kept = version();
  return kept;
}

// The pixels of the file; none when decoding failed.
std::vector<uint8_t> decoded(RowReader& reader, const JpegEncoder& file, const Header& header, bool plain,
                             int denominator = 1) {
  std::vector<uint8_t> pixels;
  Region region;
  region.denominator = denominator;
  region.height = header.height / denominator, region.width = header.width / denominator;
  if (reader.start(file.data(), file.size(), header, region, plain) != Status::ok) return pixels;
  const size_t all = size_t(region.height) * size_t(region.width) * 3;
  while (pixels.size() < all) {
    const RowReader::Rows rows = reader.rows();
    if (!rows.count) break;
    pixels.insert(pixels.end(), rows.at, rows.at + rows.stride * size_t(rows.count));
  }
  if (reader.finish() != Status::ok || pixels.size() != all) pixels.clear();
  return pixels;
}

bool decodes_alike() {
  constexpr int kHeight = 40, kWidth = 56;
  std::vector<uint8_t> pixels(size_t(kHeight) * kWidth * 3);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = uint8_t(i * 7 + (i >> 5) * (i & 15));
  JpegEncoder writer;
  if (!writer.write(pixels.data(), kHeight, kWidth, Coding())) return false;
  const Header header = read_jpeg_header(writer.data(), writer.size());
  const auto reader = libjpeg_reader(true);
  const std::vector<uint8_t> ours = decoded(*reader, writer, header, false);
  return !ours.empty() && ours == decoded(*reader, writer, header, true);
}

// Of a gray picture in three components: luma shrunk by 2, as libjpeg does it, and each chroma by what libjpeg would not.
bool shrinks_alike() {
  constexpr int kHeight = 40, kWidth = 56;
  std::vector<uint8_t> pixels(size_t(kHeight) * kWidth * 3);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = uint8_t(i / 3 * 7 + (i / 3 >> 5) * (i / 3 & 15));
  Coding coding;
  coding.subsampled = false;
  JpegEncoder writer;
  if (!writer.write(pixels.data(), kHeight, kWidth, coding)) return false;
  const Header header = read_jpeg_header(writer.data(), writer.size());
  const auto reader = libjpeg_reader(true);
  const JpegReader::Denominators denominators{2, 8, 1};
  if (reader->start_planes(writer.data(), writer.size(), header, denominators, 0, kWidth / 2, false) != Status::ok)
    return false;
  std::vector<uint8_t> luma;
  bool gray = true;
  while (luma.size() < pixels.size() / 12) {
    const std::array<RowReader::Rows, 3> rows = reader->planes();
    if (!rows[0].count) return false;
    for (int y = 0; y < rows[0].count; ++y)
      for (int x = 0; x < kWidth / 2; ++x) luma.push_back(rows[0].at[size_t(y) * rows[0].stride + size_t(x)]);
    for (int c = 1; c < 3; ++c)
      for (size_t i = 0; i < size_t(rows[size_t(c)].count) * rows[size_t(c)].stride; ++i)
        gray &= rows[size_t(c)].at[i] == 128;
  }
  if (reader->finish() != Status::ok) return false;
  const std::vector<uint8_t> rgb = decoded(*reader, writer, header, true, 2);
  if (rgb.size() != luma.size() * 3) return false;
  for (size_t i = 0; i < luma.size(); ++i) gray &= luma[i] == rgb[3 * i];
  return gray;
}

std::string reason() {
  if (!is_known(known_version().number))
    return std::string("libjpeg-turbo ") + libjpeg_version() + " is not one of the known versions, 2.0 to 3.2";
  if (!decodes_alike() || !shrinks_alike()) return "a test image did not decode to the same pixels with both";
  return "";
}

}  // namespace

const char* libjpeg_version() { return known_version().text.c_str(); }

bool libjpeg_simd() {
#ifdef WITH_SIMD
  return WITH_SIMD;
#else
  return false;
#endif
}

const std::string& libjpeg_huffman_reason() {
  static const std::string text = reason();
  return text;
}

}  // namespace fastfeed
