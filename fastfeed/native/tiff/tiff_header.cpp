#include <algorithm>
#include <cstring>

#include "image/exif.h"
#include "tiff/tiff.h"

namespace fastfeed {
namespace {

constexpr uint32_t kMostSide = 1u << 24;
constexpr uint64_t kMostUnpacked = uint64_t(256) << 20;  // bytes of a row of tiles
constexpr uint64_t kMostStrip = (uint64_t(1) << 31) - 1;  // bytes, as its header says
constexpr size_t kMostPieces = size_t(1) << 22;
constexpr size_t kMostDirectories = 32;
constexpr uint32_t kPrivate = 32766;  // photometric interpretations and compressions from here on are not of TIFF 6.0
enum Tag : uint32_t {
  kWidth = 256, kHeight = 257, kBits = 258, kCompression = 259, kPhotometric = 262, kFillOrder = 266, kStripOffsets = 273,
  kSamples = 277, kRowsPerStrip = 278, kStripCounts = 279, kPlanar = 284, kPredictor = 317, kTileWidth = 322,
  kTileHeight = 323, kTileOffsets = 324, kTileCounts = 325, kDirectories = 330, kExtraSamples = 338, kSampleFormat = 339,
  kDngVersion = 50706
};

// The first directory of a file (TIFF 6.0, section 2).
class Directory {
 public:
  // False where it does not lie in the file. `at`: where it begins; 0: where the head says.
  bool open(const uint8_t* data, size_t size, size_t at = 0) {
    data_ = data, size_ = size;
    if (size < 8) return false;
    big_ = data[0] == 'M';
    if (!at) at = number(4, 4);
    if (at > size || size - at < 2) return false;
    count_ = number(at, 2), first_ = at + 2;
    return size - first_ >= count_ * kEntry;
  }
  bool big_endian() const { return big_; }

  // The values of a tag; empty where it is not there, is not of integers or does not lie in the file.
  std::vector<uint32_t> values(Tag tag) const {
    std::vector<uint32_t> found;
    const size_t entry = find(tag);
    if (!entry) return found;
    const uint32_t type = number(entry + 2, 2), count = number(entry + 4, 4);
    const size_t bytes = type == 1 ? 1 : type == 3 ? 2 : type == 4 ? 4 : 0;
    if (!bytes || !count || count > kMostPieces) return found;
    const size_t at = bytes * count <= 4 ? entry + 8 : number(entry + 8, 4);
    if (at > size_ || bytes * count > size_ - at) return found;
    found.reserve(count);
    for (size_t i = 0; i < count; ++i) found.push_back(number(at + i * bytes, bytes));
    return found;
  }

  bool has(Tag tag) const { return find(tag) != 0; }

  // Where the next directory begins; 0: there is none.
  size_t next() const {
    const size_t at = first_ + count_ * kEntry;
    return size_ - at < 4 ? 0 : number(at, 4);
  }

  // The value of a tag that has one, or the same several times; `absent` where it is not there, kNone where it is odd.
  static constexpr uint32_t kNone = ~0u;
  uint32_t value(Tag tag, uint32_t absent) const {
    if (!has(tag)) return absent;
    const std::vector<uint32_t> all = values(tag);
    const bool same = !all.empty() && std::all_of(all.begin(), all.end(), [&](uint32_t v) { return v == all[0]; });
    return same ? all[0] : kNone;
  }

 private:
  static constexpr size_t kEntry = 12;  // bytes: tag, type, count, value or where the values are

  // Where its entry begins; 0: there is none. Of several with the same tag the first counts, as in libtiff.
  size_t find(Tag tag) const {
    for (size_t i = 0; i < count_; ++i)
      if (number(first_ + i * kEntry, 2) == tag) return first_ + i * kEntry;
    return 0;
  }

  uint32_t number(size_t at, size_t bytes) const {
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= uint32_t(data_[at + i]) << 8 * (big_ ? bytes - 1 - i : i);
    return value;
  }

  const uint8_t* data_ = nullptr;
  size_t size_ = 0, count_ = 0, first_ = 0;
  bool big_ = false;
};

// What the samples of a pixel are; false where Pillow has another idea of them, or none.
bool read_samples(const Directory& tags, TiffLayout& layout) {
  const uint32_t bits = tags.value(kBits, 1), photometric = tags.value(kPhotometric, Directory::kNone);
  const uint32_t samples = tags.value(kSamples, 1);
  if ((bits != 8 && bits != 16) || (photometric != 1 && photometric != 2) || tags.value(kPlanar, 1) != 1) return false;
  if (tags.values(kBits).size() != samples) return false;
  if (tags.value(kSampleFormat, 1) != 1 || tags.value(kFillOrder, 1) != 1) return false;
  const uint32_t colors = photometric == 1 ? 1 : 3;
  if (samples != colors && samples != colors + 1) return false;
  const bool alpha = samples == colors + 1;
  const std::vector<uint32_t> extra = tags.values(kExtraSamples);
  if (alpha ? extra != std::vector<uint32_t>{2} : tags.has(kExtraSamples)) return false;  // 2: unassociated alpha
  if (alpha && colors == 1) return false;
  layout.samples = {int(colors), alpha, int(bits / 8), bits == 16 && !tags.big_endian() ? 1 : 0};
  return true;
}

// The size of tiles or strips, of an image whose size and samples are known.
bool read_tiles(const Directory& tags, TiffLayout& layout) {
  layout.tiled = tags.has(kTileOffsets);
  if (layout.tiled == tags.has(kStripOffsets)) return false;
  if (layout.tiled) {
    const uint32_t rows = tags.value(kTileHeight, 0), columns = tags.value(kTileWidth, 0);
    if (!rows || !columns || rows > kMostSide || columns > kMostSide) return false;
    layout.tile_height = int(rows), layout.tile_width = int(columns);
    return true;
  }
  if (tags.has(kTileWidth) || tags.has(kTileHeight)) return false;
  layout.tile_width = layout.width, layout.tile_height = layout.height;
  if (!tags.has(kRowsPerStrip)) return true;
  const std::vector<uint32_t> rows = tags.values(kRowsPerStrip);
  if (rows.size() != 1 || !rows[0]) return false;
  if (rows[0] != ~0u && rows[0] * layout.tile_row_bytes() > kMostStrip) return false;  // as in Pillow
  layout.tile_height = int(std::min(rows[0], uint32_t(layout.height)));
  return true;
}

bool read_pieces(const Directory& tags, const uint8_t* data, size_t size, TiffLayout& layout) {
  const std::vector<uint32_t> starts = tags.values(layout.tiled ? kTileOffsets : kStripOffsets);
  const std::vector<uint32_t> counts = tags.values(layout.tiled ? kTileCounts : kStripCounts);
  const uint64_t needed = uint64_t(layout.across()) * uint64_t(layout.down());
  if (starts.size() != needed || counts.size() != needed) return false;
  layout.pieces.reserve(starts.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    if (!counts[i] || starts[i] > size || counts[i] > size - starts[i]) return false;
    layout.pieces.push_back({data + starts[i], data + starts[i] + counts[i]});
  }
  if (layout.compression != 1) return true;
  for (int row = 0; row < layout.down(); ++row)
    for (int i = 0; i < layout.across(); ++i) {
      const TiffLayout::Piece& piece = layout.pieces[size_t(row) * size_t(layout.across()) + size_t(i)];
      if (size_t(piece.end - piece.at) < size_t(layout.rows_of(row)) * layout.tile_row_bytes()) return false;
    }
  return true;
}

// Whether a directory, one of its own or one that follows may hold the values of a sensor: camera raw, which another decoder
// names. Its first image is a thumbnail.
bool may_be_raw(const Directory& tags, const uint8_t* data, size_t size) {
  if (size < 12 || std::memcmp(data + 8, "CR", 2) == 0 || std::memcmp(data + 8, "IIII", 4) == 0) return true;
  std::vector<Directory> waiting{tags};
  for (size_t i = 0; i < std::min(waiting.size(), kMostDirectories); ++i) {
    if (waiting[i].has(kDngVersion)) return true;
    const uint32_t photometric = waiting[i].value(kPhotometric, 0), compression = waiting[i].value(kCompression, 1);
    if (photometric >= kPrivate || (compression >= kPrivate && compression != 32773 && compression != 32946)) return true;
    std::vector<uint32_t> starts = waiting[i].values(kDirectories);
    if (const size_t next = waiting[i].next()) starts.push_back(uint32_t(next));
    if (starts.size() > kMostDirectories) return true;
    for (const uint32_t at : starts) {
      Directory other;
      if (at && other.open(data, size, at)) waiting.push_back(other);
    }
  }
  return false;
}

}  // namespace

int TiffLayout::rows_of(int tile_row) const {
  return tiled ? tile_height : std::min(tile_height, height - tile_row * tile_height);
}

bool is_tiff(const uint8_t* data, size_t size) {
  return size >= 8 && (std::memcmp(data, "II*\0", 4) == 0 || std::memcmp(data, "MM\0*", 4) == 0);
}

bool read_tiff_layout(const uint8_t* data, size_t size, TiffLayout& layout) {
  Directory tags;
  if (!tags.open(data, size) || !read_samples(tags, layout) || may_be_raw(tags, data, size)) return false;
  layout.big_endian = tags.big_endian();
  const uint32_t width = tags.value(kWidth, 0), height = tags.value(kHeight, 0);
  if (!width || !height || width > kMostSide || height > kMostSide) return false;
  layout.width = int(width), layout.height = int(height);
  layout.orientation = exif_orientation(data, size).value;
  const uint32_t compression = tags.value(kCompression, 1), predictor = tags.value(kPredictor, 1);
  constexpr uint32_t kKnown[] = {1, 5, 8, 32773, 32946};  // none, LZW, deflate, PackBits, deflate's old number
  if (std::find(std::begin(kKnown), std::end(kKnown), compression) == std::end(kKnown)) return false;
  if (predictor != 1 && (predictor != 2 || compression == 1 || compression == 32773)) return false;
  layout.compression = int(compression), layout.differences = predictor == 2;
  return read_tiles(tags, layout) && layout.unpacked_bytes() <= kMostUnpacked && read_pieces(tags, data, size, layout);
}

Header read_tiff_header(const uint8_t* data, size_t size) {
  Header header;
  header.format = Format::tiff;
  header.status = Status::unsupported_format;
  TiffLayout layout;
  if (!read_tiff_layout(data, size, layout)) return header;
  header.height = layout.height, header.width = layout.width;
  header.orientation = uint8_t(layout.orientation);
  header.components = uint8_t(layout.samples.colors);
  header.precision = uint8_t(8 * layout.samples.bytes);
  header.color = uint8_t((layout.samples.colors == 3 ? 2 : 0) | (layout.samples.alpha ? 4 : 0));
  header.unpacked_bytes = uint32_t(layout.unpacked_bytes());
  header.status = Status::ok;
  return header;
}

}  // namespace fastfeed
