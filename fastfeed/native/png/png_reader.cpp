#include <algorithm>
#include <cstring>

#include "png/png.h"
#include "image/rgb_rows.h"

namespace fastfeed {
namespace {

constexpr int kRows = 8;       // rows per call
constexpr size_t kBefore = 16, kBehind = 32;  // bytes around a row that filters read and write

// What is damaged is declined, as is what read_png_header() does not take: another decoder says what is wrong with it.
constexpr Status kDeclined = Status::unsupported_format;

class PngReader final : public RowReader {
 public:
  Status start(const uint8_t* data, size_t size, const Header& header, const Region& region, bool) override {
    release();
    if (!read_png_parts(data, size, parts_) || !inflate_.open(&parts_.pixels)) return kDeclined;
    color_ = header.color, depth_ = header.precision;
    matte_ = region.matte, stored_ = region.stored;
    const size_t samples = size_t(png_samples(color_));
    pixel_ = std::max(1, int(samples) * depth_ / 8);
    row_ = (size_t(header.width) * samples * depth_ + 7) / 8;
    left_ = region.left, width_ = region.width;
    needed_ = (size_t(region.left + region.width) * samples * depth_ + 7) / 8;
    to_end_ = region.top + region.height == header.height;
    stride_ = kBefore + needed_ + kBehind;
    lines_.assign(3 * stride_, 0);
    ready_ = false;
    lines_left_ = region.top + region.height;
    rgb_.resize(size_t(kRows) * std::max(size_t(width_) * 3, needed_) + kBehind);
    if (color_ == 0 || color_ == 3) set_colors();
    has_key_ = color_ != 3 && parts_.alpha.at != parts_.alpha.end;
    if (has_key_) set_key();
    for (int y = 0; y < region.top; ++y) {
      if (!next_line()) return kDeclined;
      if (is_set(stop)) return Status::cancelled;
    }
    rows_left_ = region.height;
    return Status::ok;
  }

  int left() const override { return left_; }

  Rows rows() override {
    const size_t stride = stored_ ? needed_ : size_t(width_) * 3;
    const int count = std::min(kRows, rows_left_);
    for (int i = 0; i < count; ++i)
      if (!next_line() || !expand(rgb_.data() + size_t(i) * stride)) return {nullptr, 0, 0};
    rows_left_ -= count;
    return {rgb_.data(), stride, count};
  }

  Status finish() override {
    const bool sound = !rows_left_ && (!to_end_ || inflate_.ends());
    release();
    return sound ? Status::ok : kDeclined;
  }

  bool gave_up() const override { return false; }

  void release() override { parts_.pixels.clear(); }

 private:
  uint8_t* line(int i) { return lines_.data() + size_t(i % 3) * stride_ + kBefore; }

  // line(now_) becomes the next one. Lines are made two at a time.
  bool next_line() {
    now_ = (now_ + 1) % 3;
    if (ready_) {
      ready_ = false;
      return true;
    }
    const int count = std::min(lines_left_, 2);
    const uint8_t* taken = inflate_.take(size_t(count) * (1 + row_));
    if (!taken) return false;
    lines_left_ -= count;
    ready_ = count == 2;
    const uint8_t* const in[2] = {taken, taken + 1 + row_};
    uint8_t* const out[2] = {line(now_), line(now_ + 1)};
    const uint8_t* above = line(now_ + 2);
    if (ready_ && in[0][0] == kPaeth && in[1][0] == kPaeth) {
      unfilter_two(pixel_, {in[0] + 1, in[1] + 1}, above, out, needed_);
      return true;
    }
    for (int i = 0; i < count; ++i)
      if (!unfilter(in[i][0], pixel_, in[i] + 1, i ? out[0] : above, out[i], needed_)) return false;
    return true;
  }

  // What each gray level, or entry of the palette, is shown as.
  void set_colors() {
    const int levels = 1 << std::min(int(depth_), 8);
    colors_ = color_ == 3 ? int(parts_.palette.end - parts_.palette.at) / 3 : levels;
    const int clear = color_ == 3 ? int(parts_.alpha.end - parts_.alpha.at) : 0;
    for (int i = 0; i < std::min(colors_, 256); ++i)
      for (size_t c = 0; c < 3; ++c) {
        const uint8_t value = color_ == 3 ? parts_.palette.at[3 * size_t(i) + c] : uint8_t(i * (255 / (levels - 1)));
        color_of_[i][c] = i < clear ? over(value, parts_.alpha.at[i], matte_[c]) : value;
      }
  }

  // The transparent color of gray or RGB, as its pixels stand in a row. Bits beyond the depth do not count.
  void set_key() {
    const uint8_t* at = parts_.alpha.at;
    if (depth_ < 8) {
      std::memcpy(color_of_[at[1] & ((1 << depth_) - 1)], matte_.data(), 3);
      has_key_ = false;
      return;
    }
    const size_t bytes = depth_ / 8;
    for (size_t c = 0; c < size_t(png_samples(color_)); ++c)
      std::memcpy(key_ + c * bytes, at + 2 * c + (2 - bytes), bytes);
  }

  void clear_key(const uint8_t* in, size_t n, uint8_t* out) const {
    const size_t pixel = size_t(pixel_);
    for (size_t i = 0; i < n; ++i, in += pixel)
      if (std::memcmp(in, key_, pixel) == 0) std::memcpy(out + 3 * i, matte_.data(), 3);
  }

  // The row as RGB, from left_ on.
  bool expand(uint8_t* out) {
    const uint8_t* in = line(now_);
    if (stored_) {
      std::memcpy(out, in, needed_);
      return true;
    }
    const size_t n = size_t(width_), first = size_t(left_);
    if (color_ == 2 || color_ & 4) {
      const SampleLayout layout{color_ & 2 ? 3 : 1, (color_ & 4) != 0, depth_ / 8, 0};
      samples_to_rgb(layout, in + first * layout.pixel(), n, matte_, out);
      if (has_key_) clear_key(in + first * layout.pixel(), n, out);
      return true;
    }
    if (depth_ < 8) return expand_few(in, first, n, out);
    const size_t step = depth_ / 8;
    in += first * step;
    bool known = true;
    for (size_t i = 0; i < n; ++i) {
      const uint8_t value = in[i * step];
      known &= value < colors_;
      std::memcpy(out + 3 * i, color_of_[value], 4);
    }
    if (has_key_) clear_key(in, n, out);
    return known;
  }

  // Of pixels of less than a byte.
  bool expand_few(const uint8_t* in, size_t first, size_t n, uint8_t* out) {
    bool known = true;
    for (size_t x = first; x < first + n; ++x, out += 3) {
      const size_t bit = x * depth_;
      const int value = in[bit / 8] >> (8 - depth_ - bit % 8) & ((1 << depth_) - 1);
      known &= value < colors_;
      std::memcpy(out, color_of_[value], 4);
    }
    return known;
  }

  PngParts parts_;
  Matte matte_{};
  Inflate inflate_;
  std::vector<uint8_t> lines_, rgb_;
  size_t row_ = 0, needed_ = 0, stride_ = 0;
  uint8_t color_ = 0, depth_ = 0, color_of_[256][4] = {}, key_[6] = {};
  int pixel_ = 0, colors_ = 0, left_ = 0, width_ = 0, rows_left_ = 0;
  int now_ = 0, lines_left_ = 0;  // of three lines: the last one that was handed out; those that are not made yet
  bool to_end_ = false, ready_ = false;  // ready_: the line after line(now_) is made
  bool has_key_ = false, stored_ = false;
};

}  // namespace

std::unique_ptr<RowReader> png_reader() { return std::make_unique<PngReader>(); }

}  // namespace fastfeed
