#include <algorithm>
#include <cstring>

#include "png/inflate.h"
#include "tiff/lzw.h"
#include "tiff/tiff.h"

namespace fastfeed {
namespace {

constexpr int kRows = 8;  // rows per call

// What is damaged is declined, as is what read_tiff_header() does not take: another decoder says what is wrong with it.
constexpr Status kDeclined = Status::unsupported_format;

// TIFF 6.0, section 9: counts of bytes to copy, or of times that the next one is repeated. What the last one brings beyond
// `size` is left out, as in libtiff.
bool unpack_bits(const uint8_t* in, const uint8_t* end, uint8_t* out, size_t size) {
  for (uint8_t* const out_end = out + size; out != out_end;) {
    if (in == end) return false;
    const int8_t head = int8_t(*in++);
    if (head == -128) continue;
    const size_t count = size_t(head < 0 ? 1 - head : head + 1), taken = head < 0 ? 1 : count;
    if (taken > size_t(end - in)) return false;
    const size_t shown = std::min(count, size_t(out_end - out));
    if (head < 0) std::memset(out, *in, shown);
    else std::memcpy(out, in, shown);
    out += shown, in += taken;
  }
  return true;
}

// Samples of a row from their differences to those of the pixel before (section 14).
template <size_t kPixel>
void add_differences(uint8_t* row, size_t bytes) {
  uint8_t sums[kPixel] = {};
  for (size_t i = 0; i < bytes; i += kPixel)
    for (size_t c = 0; c < kPixel; ++c) row[i + c] = sums[c] = uint8_t(sums[c] + row[i + c]);
}

// The same of two bytes each.
void add_wide_differences(uint8_t* row, size_t bytes, size_t pixel, bool big_endian) {
  const size_t low = big_endian ? 1 : 0;
  for (size_t i = pixel; i < bytes; i += 2) {
    const unsigned before = row[i - pixel + low] | unsigned(row[i - pixel + 1 - low]) << 8;
    const unsigned sum = before + (row[i + low] | unsigned(row[i + 1 - low]) << 8);
    row[i + low] = uint8_t(sum), row[i + 1 - low] = uint8_t(sum >> 8);
  }
}

class TiffReader final : public RowReader {
 public:
  Status start(const uint8_t* data, size_t size, const Header&, const Region& region, bool) override {
    release();
    layout_ = TiffLayout();
    if (!read_tiff_layout(data, size, layout_)) return kDeclined;
    matte_ = region.matte;
    next_ = region.top, last_ = region.top + region.height;
    left_ = region.left, width_ = region.width;
    stored_ = region.stored;
    pixel_ = stored_ ? layout_.samples.pixel() : 3;
    is_rgb_ = layout_.samples.colors == 3 && !layout_.samples.alpha && layout_.samples.bytes == 1;
    rgb_.resize(size_t(kRows) * size_t(width_) * pixel_);
    tile_row_ = -1;
    return Status::ok;
  }

  int left() const override { return left_; }

  Rows rows() override {
    const size_t stride = size_t(width_) * pixel_;
    const int count = std::min(kRows, last_ - next_);
    if (is_rgb_ && first_tile() == last_tile()) return stored_rows();
    for (int i = 0; i < count; ++i, ++next_) {
      const int tile_row = next_ / layout_.tile_height;
      if (tile_row != tile_row_ && !unpack(tile_row)) return {nullptr, 0, 0};
      expand(next_ - tile_row * layout_.tile_height, rgb_.data() + size_t(i) * stride);
    }
    return {rgb_.data(), stride, count};
  }

  Status finish() override {
    const bool sound = next_ == last_;
    release();
    return sound ? Status::ok : kDeclined;
  }

  bool gave_up() const override { return false; }

  void release() override {
    layout_.pieces.clear();
    if (tiles_.capacity() > kKept) std::vector<uint8_t>().swap(tiles_);
  }

 private:
  static constexpr size_t kKept = size_t(1) << 20, kBehind = 48;  // bytes around a tile
  static_assert(kBehind >= kBeyond, "decompress_lzw() writes so far");

  // Of one tile: rows that are RGB already.
  Rows stored_rows() {
    const int tile_row = next_ / layout_.tile_height, first = next_ - tile_row * layout_.tile_height;
    if (tile_row != tile_row_ && !unpack(tile_row)) return {nullptr, 0, 0};
    const int count = std::min({kRows, last_ - next_, layout_.rows_of(tile_row) - first});
    next_ += count;
    return {pixels(first_tile(), first, left_), layout_.tile_row_bytes(), count};
  }

  int first_tile() const { return left_ / layout_.tile_width; }
  int last_tile() const { return (left_ + width_ - 1) / layout_.tile_width; }
  size_t tile_bytes() const { return size_t(layout_.tile_height) * layout_.tile_row_bytes(); }
  uint8_t* unpacked(int tile) {
    return tiles_.data() + size_t(tile - first_tile()) * (tile_bytes() + kBehind);
  }

  // The tiles of a row that the region needs. Those that are not compressed stay where they are.
  bool unpack(int tile_row) {
    tile_row_ = tile_row;
    pieces_ = layout_.pieces.data() + size_t(tile_row) * size_t(layout_.across());
    if (layout_.compression == 1) return true;
    tiles_.resize(size_t(last_tile() - first_tile() + 1) * (tile_bytes() + kBehind));
    const int rows = layout_.rows_of(tile_row);
    // of a strip, rows below the region are not looked at
    const int needed = layout_.tiled ? rows : std::min(rows, last_ - tile_row * layout_.tile_height);
    for (int tile = first_tile(); tile <= last_tile(); ++tile)
      if (!unpack_tile(pieces_[tile], unpacked(tile), needed, needed == rows)) return false;
    return true;
  }

  bool unpack_tile(const TiffLayout::Piece& piece, uint8_t* out, int rows, bool to_end) {
    const size_t row = layout_.tile_row_bytes(), size = size_t(rows) * row;
    if (layout_.compression == 5) {
      if (!decompress_lzw(piece.at, piece.end, out, size)) return false;
    } else if (layout_.compression == 32773) {
      if (!unpack_bits(piece.at, piece.end, out, size)) return false;
    } else if (!inflate(piece, out, size, to_end)) {
      return false;
    }
    if (layout_.differences)
      for (int y = 0; y < rows; ++y) add_up(out + size_t(y) * row, row);
    return true;
  }

  bool inflate(const TiffLayout::Piece& piece, uint8_t* out, size_t size, bool to_end) {
    stream_ = {{piece.at, piece.end}};
    if (!inflate_.open(&stream_)) return false;
    for (size_t at = 0, count; at < size; at += count) {
      count = std::min(size - at, Inflate::kMost);
      const uint8_t* taken = inflate_.take(count);
      if (!taken) return false;
      std::memcpy(out + at, taken, count);
    }
    return !to_end || inflate_.ends();
  }

  void add_up(uint8_t* row, size_t bytes) {
    const SampleLayout& samples = layout_.samples;
    if (samples.bytes == 2) add_wide_differences(row, bytes, samples.pixel(), layout_.big_endian);
    else if (samples.pixel() == 1) add_differences<1>(row, bytes);
    else if (samples.pixel() == 3) add_differences<3>(row, bytes);
    else add_differences<4>(row, bytes);
  }

  // Where row y of a tile has column x of the image.
  const uint8_t* pixels(int tile, int y, int x) {
    const uint8_t* at = layout_.compression == 1 ? pieces_[tile].at : unpacked(tile);
    return at + size_t(y) * layout_.tile_row_bytes() + size_t(x - tile * layout_.tile_width) * layout_.samples.pixel();
  }

  // Row y of the tiles as RGB, from left_ on.
  void expand(int y, uint8_t* out) {
    for (int tile = first_tile(); tile <= last_tile(); ++tile) {
      const int begin = std::max(left_, tile * layout_.tile_width);
      const int end = std::min(left_ + width_, (tile + 1) * layout_.tile_width);
      const size_t n = size_t(end - begin);
      if (stored_) std::memcpy(out, pixels(tile, y, begin), n * pixel_);
      else samples_to_rgb(layout_.samples, pixels(tile, y, begin), n, matte_, out);
      out += n * pixel_;
    }
  }

  TiffLayout layout_;
  Matte matte_{};
  Inflate inflate_;
  std::vector<Chunk> stream_;
  std::vector<uint8_t> tiles_, rgb_;  // tiles of a row, one behind another; rows that are handed out
  const TiffLayout::Piece* pieces_ = nullptr;  // of the row of tiles at work
  int tile_row_ = -1, next_ = 0, last_ = 0, left_ = 0, width_ = 0;
  size_t pixel_ = 3;  // bytes of one that is handed out
  bool is_rgb_ = false, stored_ = false;
};

}  // namespace

std::unique_ptr<RowReader> tiff_reader() { return std::make_unique<TiffReader>(); }

}  // namespace fastfeed
