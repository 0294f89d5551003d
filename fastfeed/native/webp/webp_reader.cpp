#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "webp/webp.h"

#ifdef FASTFEED_WEBP
#include <webp/decode.h>
#endif

namespace fastfeed {
namespace {

// What is damaged is declined, as is what read_webp_header() does not take: another decoder says what is wrong with it.
constexpr Status kDeclined = Status::unsupported_format;

// Sums of samples, and what one of them is of their mean.
struct Sums {
  int y, u, v;
  float y_part, uv_part;
};

uint8_t level(float value) { return uint8_t(std::clamp(value, 0.0f, 255.0f) + 0.5f); }

// BT.601 with luma of 16..235 and chroma of 16..240, as VP8 has it (RFC 6386, 9.2).
void to_rgb(const Sums& sums, uint8_t* rgb) {
  const float luma = (float(sums.y) * sums.y_part - 16) * 1.1643836f;
  const float blue = float(sums.u) * sums.uv_part - 128, red = float(sums.v) * sums.uv_part - 128;
  rgb[0] = level(luma + red * 1.5960268f);
  rgb[1] = level(luma - blue * 0.3917623f - red * 0.8129676f);
  rgb[2] = level(luma + blue * 2.0172321f);
}

template <int kBy>
int sum_of_run(const uint16_t* sums) {
  int sum = 0;
  for (int i = 0; i < kBy; ++i) sum += sums[i];
  return sum;
}

// sums[i] = the sum of column i over `rows` rows.
void add_rows(const uint8_t* at, size_t stride, int rows, int width, uint16_t* sums) {
  for (int x = 0; x < width; ++x) sums[x] = at[x];
  for (int r = 1; r < rows; ++r) {
    const uint8_t* row = at + size_t(r) * stride;
    for (int x = 0; x < width; ++x) sums[x] = uint16_t(sums[x] + row[x]);
  }
}

constexpr int kStrip = 1024;  // columns at a time

template <int kBy>
void mean_row_by(const Planes& planes, int row, uint8_t* rgb) {
  constexpr int kHalf = kBy / 2;
  const int top = row * kBy, rows = std::min(kBy, planes.height - top);
  const int uv_top = top / 2, uv_rows = (rows + 1) / 2;
  uint16_t y[kStrip], u[kStrip / 2], v[kStrip / 2];
  for (int left = 0; left < planes.width; left += kStrip) {
    const int width = std::min(kStrip, planes.width - left), uv_width = (width + 1) / 2;
    const size_t uv_at = size_t(uv_top) * planes.uv_stride + size_t(left / 2);
    add_rows(planes.y + size_t(top) * planes.y_stride + left, planes.y_stride, rows, width, y);
    add_rows(planes.u + uv_at, planes.uv_stride, uv_rows, uv_width, u);
    add_rows(planes.v + uv_at, planes.uv_stride, uv_rows, uv_width, v);
    const int runs = width / kBy;
    Sums sums{0, 0, 0, 1 / float(kBy * rows), 1 / float(kHalf * uv_rows)};
    for (int x = 0; x < runs; ++x, rgb += 3) {
      sums.y = sum_of_run<kBy>(y + x * kBy);
      sums.u = sum_of_run<kHalf>(u + x * kHalf), sums.v = sum_of_run<kHalf>(v + x * kHalf);
      to_rgb(sums, rgb);
    }
    if (const int over = width - runs * kBy) {  // at the right side of the image
      sums = {0, 0, 0, 1 / float(over * rows), 1 / float((over + 1) / 2 * uv_rows)};
      for (int x = runs * kBy; x < width; ++x) sums.y += y[x];
      for (int x = runs * kHalf; x < uv_width; ++x) sums.u += u[x], sums.v += v[x];
      to_rgb(sums, rgb);
      rgb += 3;
    }
  }
}

}  // namespace

void mean_row(const Planes& planes, int by, int row, uint8_t* rgb) {
  if (by == 2) mean_row_by<2>(planes, row, rgb);
  else if (by == 4) mean_row_by<4>(planes, row, rgb);
  else mean_row_by<8>(planes, row, rgb);
}

#ifdef FASTFEED_WEBP
namespace {

constexpr int kRows = 8;         // rows per call
constexpr int kContext = 2;      // rows next to a region that smooth chroma upsampling reads
constexpr size_t kPiece = 1 << 16;  // bytes of a file at a time, at least, so that a stop takes effect soon

class WebpReader final : public RowReader {
 public:
  ~WebpReader() override { release(); }

  Status start(const uint8_t* data, size_t size, const Header& header, const Region& region, bool) override {
    release();
    if (!WebPInitDecoderConfig(&config_)) return kDeclined;
    const int by = by_ = region.denominator;
    alpha_ = header.color == 6;
    matte_ = region.matte;
    // crops begin at even pixels, since chroma has half the size
    const int context = by > 1 || header.lossless ? 0 : kContext;
    const int top = std::max(region.top * by - context, 0) & ~1, left = region.left * by & ~1;
    config_.options.use_cropping = 1;
    config_.options.crop_top = top, config_.options.crop_left = left;
    config_.options.crop_height = height_ = std::min((region.top + region.height) * by + context, header.height) - top;
    config_.options.crop_width = width_ = std::min((region.left + region.width) * by, header.width) - left;
    config_.output.colorspace = alpha_ ? MODE_RGBA : by > 1 ? MODE_YUV : MODE_RGB;
    next_ = by > 1 ? 0 : region.top - top;
    last_ = next_ + region.height;
    left_ = left / by;
    data_ = data, size_ = size, fed_ = 0;
    piece_ = std::max(kPiece, size / 64);
    decoder_ = WebPIDecode(nullptr, 0, &config_);
    if (!decoder_) return Status::no_memory;
    rgb_.resize(size_t(kRows) * size_t(columns()) * 3);
    return Status::ok;
  }

  int left() const override { return left_; }

  Rows rows() override {
    const int count = std::min(kRows, last_ - next_);
    const int needed = by_ > 1 ? std::min((next_ + count) * by_, height_) : next_ + count;
    if (!decode(needed)) return {nullptr, 0, 0};
    const int first = next_;
    next_ += count;
    if (by_ > 1) return {means(first, count), size_t(columns()) * 3, count};
    const WebPRGBABuffer& pixels = config_.output.u.RGBA;
    const uint8_t* at = pixels.rgba + ptrdiff_t(first) * pixels.stride;
    if (alpha_) return {blended(at, pixels.stride, count), size_t(columns()) * 3, count};
    return {at, size_t(pixels.stride), count};
  }

  Status finish() override {
    const bool sound = decoder_ && next_ == last_;
    release();
    return sound ? Status::ok : kDeclined;
  }

  bool gave_up() const override { return false; }

  void release() override {
    if (!decoder_) return;
    WebPIDelete(decoder_);
    WebPFreeDecBuffer(&config_.output);
    decoder_ = nullptr;
    if (rgb_.capacity() > kKept) std::vector<uint8_t>().swap(rgb_);
  }

 private:
  static constexpr size_t kKept = 1 << 20;

  int columns() const { return (width_ + by_ - 1) / by_; }

  // Up to row `needed` of the crop, in pieces of the file.
  bool decode(int needed) {
    while (ready_rows() < needed) {
      if (fed_ == size_ || is_set(stop)) return false;
      fed_ = std::min(fed_ + piece_, size_);
      const VP8StatusCode status = WebPIUpdate(decoder_, data_, fed_);
      if (status == VP8_STATUS_OUT_OF_MEMORY) throw std::bad_alloc();
      if (status != VP8_STATUS_OK && status != VP8_STATUS_SUSPENDED) return false;
      if (status == VP8_STATUS_OK) fed_ = size_;
    }
    return true;
  }

  int ready_rows() const {
    int rows = 0;
    WebPIDecodedArea(decoder_, nullptr, nullptr, nullptr, &rows);
    return rows;
  }

  const uint8_t* means(int first, int count) {
    const WebPYUVABuffer& pixels = config_.output.u.YUVA;
    const Planes planes{pixels.y, pixels.u, pixels.v, size_t(pixels.y_stride), size_t(pixels.u_stride), height_, width_};
    for (int i = 0; i < count; ++i) mean_row(planes, by_, first + i, rgb_.data() + size_t(i) * size_t(columns()) * 3);
    return rgb_.data();
  }

  const uint8_t* blended(const uint8_t* at, int stride, int count) {
    uint8_t* out = rgb_.data();
    for (int i = 0; i < count; ++i, at += stride)
      for (int x = 0; x < width_; ++x, out += 3)
        for (size_t c = 0; c < 3; ++c) out[c] = over(at[4 * x + int(c)], at[4 * x + 3], matte_[c]);
    return rgb_.data();
  }

  WebPDecoderConfig config_{};
  WebPIDecoder* decoder_ = nullptr;
  std::vector<uint8_t> rgb_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0, fed_ = 0, piece_ = 0;
  Matte matte_{};
  int by_ = 1, left_ = 0, height_ = 0, width_ = 0;  // height, width: of the crop
  int next_ = 0, last_ = 0;  // rows to hand out, counted from the crop's first, shrunk
  bool alpha_ = false;
};

}  // namespace

std::unique_ptr<RowReader> webp_reader() { return std::make_unique<WebpReader>(); }
#else
std::unique_ptr<RowReader> webp_reader() { return nullptr; }
#endif

}  // namespace fastfeed
