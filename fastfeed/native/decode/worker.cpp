#include "decode/worker.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "decode/geometry.h"
#include "decode/probe.h"
#include "jpeg/libjpeg.h"
#include "decode/planes.h"
#include "png/png.h"
#include "system/admission.h"
#include "system/system.h"
#include "tiff/tiff.h"
#include "webp/webp.h"

namespace fastfeed {
namespace {

constexpr int64_t kDensePixels = 16000000;  // beyond both, no photograph
constexpr int64_t kPixelsPerByte = 4000;
constexpr uint64_t kKeptPixels = 4000000;  // of a result: memory beyond that is freed with the image
constexpr double kNeverShrunk = 1e6;  // an `enlarge` that asks for all pixels of a file
constexpr int kContext = 2;  // pixels next to a region that smooth chroma upsampling reads

// A window that the image does not have is the caller's mistake, not the file's. A pixel of rounding is tolerated.
void check(const Window& w, const Header& header) {
  const bool sane = w.height > 0 && w.width > 0 && w.top > -1 && w.left > -1 &&
                    w.top + w.height < header.shown_height() + 1 && w.left + w.width < header.shown_width() + 1;
  if (!sane) throw std::invalid_argument("a window lies outside its image");
}

int shrunk_by(const Header& header, const Window& w, int height, int width, const Limits& limits) {
  // a JPEG in the DCT domain, a lossy WebP by means of its planes
  const bool shrinks = header.format == Format::jpeg ||
                       (header.format == Format::webp && !header.lossless && header.color == 2);
  return shrinks ? denominator(w.height, w.width, height, width, limits.enlarge) : 1;
}

// The luma of rows of RGB, of `n` pixels each, one behind another: round(0.299 r + 0.587 g + 0.114 b), as Pillow has it.
const uint8_t* gray_rows(const RowReader::Rows& rows, int count, size_t n, std::vector<uint8_t>& out) {
  constexpr size_t kBehind = 64;  // bytes that are read on
  out.resize(size_t(count) * n + kBehind);
  for (size_t y = 0; y < size_t(count); ++y) {
    const uint8_t* in = rows.at + y * rows.stride;
    uint8_t* const to = out.data() + y * n;
    for (size_t x = 0; x < n; ++x, in += 3) to[x] = uint8_t((19595u * in[0] + 38470u * in[1] + 7471u * in[2] + 0x8000u) >> 16);
  }
  return out.data();
}

// Whether a window is so much of a JPEG that nothing is lost when all of its blocks are transformed.
bool shows_most(const Header& header, const Window& w) {
  return header.format == Format::jpeg && w.height * w.width >= 0.5 * header.shown_height() * header.shown_width();
}

}  // namespace

int denominator(double height, double width, int rows, int columns, double enlarge) {
  const double room = std::min(height / rows, width / columns) / enlarge;
  for (int d : {8, 4, 2})
    if (room >= d) return d;
  return 1;
}

Status admit(const Header& header, size_t size, const Limits& limits) {
  if (header.status != Status::ok) return header.status;
  const bool jpeg = header.format == Format::jpeg;
  if (jpeg && (header.precision != 8 || (header.components != 1 && header.components != 3)))
    return Status::unsupported_format;
  if (jpeg && header.sof != 0xC0 && header.sof != 0xC1 && header.sof != 0xC2) return Status::unsupported_format;
  const int64_t pixels = int64_t(header.height) * header.width;
  if (pixels > limits.max_pixels) return Status::bomb;
  if (pixels > std::max(kDensePixels, kPixelsPerByte * int64_t(size))) return Status::bomb;
  return Status::ok;
}

Worker::Worker() : readers_{nullptr, png_reader(), webp_reader(), tiff_reader()} {
  auto jpegs = libjpeg_reader(libjpeg_huffman_reason().empty());
  jpegs_ = jpegs.get();
  readers_[size_t(Format::jpeg)] = std::move(jpegs);
}

template <class Room, class Task>
Status Worker::checked(const uint8_t* data, size_t size, const Window& window, const Limits& limits, Room room,
                       Task task) {
  try {
    const Header header = read_header(data, size);
    const Status status = admit(header, size, limits);
    if (status != Status::ok) return status;
    check(window, header);
    const Admission admission(room(header), stopped);
    return admission.stopped() ? Status::cancelled : task(header);
  } catch (const std::bad_alloc&) {
    for (const auto& reader : readers_)
      if (reader) reader->release();
    return Status::no_memory;
  }
}

Status Worker::pixels(const uint8_t* data, size_t size, const Header& header, const Window& window, Filter filter,
                      const Limits& limits, const Slot& slot) {
  const Status status = run(data, size, header, window, filter, limits, slot, limits.plain);
  return reader(header).gave_up() ? run(data, size, header, window, filter, limits, slot, true) : status;
}

Status Worker::decode(const uint8_t* data, size_t size, const Window& window, Filter filter, const Limits& limits,
                      const Slot& slot, bool admitted) {
  const auto room = [&](const Header& header) {
    return admitted ? 0 : held_bytes(header, shrunk_by(header, window, slot.height, slot.width, limits));
  };
  const Status status = checked(data, size, window, limits, room, [&](const Header& header) {
    return pixels(data, size, header, window, filter, limits, slot);
  });
  if (status != Status::ok)
    for (int y = 0; y < slot.height; ++y) std::memset(slot.at + y * slot.row, 0, size_t(slot.width) * size_t(limits.channels));
  return status;
}

Status Worker::recode(const uint8_t* data, size_t size, const Window& window, Filter filter, const Limits& limits,
                      int height, int width, const Coding& coding) {
  const uint64_t area = uint64_t(height) * uint64_t(width);
  const bool large = area > kKeptPixels;
  const size_t bytes = size_t(area) * 3;
  Status status = Status::bomb;
  if (area <= uint64_t(limits.max_pixels) && area <= SIZE_MAX / 8) {
    YccPlanes planes = laid_out(height, width, coding.subsampled);
    const auto in_planes = [&](const Header& header) {
      return shows_most(header, window) && limits.enlarge < kNeverShrunk;
    };
    const auto room = [&](const Header& header) {
      const size_t held = in_planes(header) ? held_in_planes(header, window, planes, limits)
                                            : held_bytes(header, shrunk_by(header, window, height, width, limits));
      return held + (large ? bytes * (coding.optimize ? 4 : 2) : 0);
    };
    status = checked(data, size, window, limits, room, [&](const Header& header) {
      const auto write = [&](const auto&... what) {
        const int64_t begun = clock_ns();
        const bool written = encoder_.write(what..., coding);
        encode_ns += clock_ns() - begun;
        return written ? Status::ok : Status::no_memory;
      };
      if (in_planes(header)) {
        const auto scale = [&](bool plain) {
          return scale_planes(data, size, header, window, filter, limits, plain, planes);
        };
        Status scaled = scale(limits.plain);
        if (jpegs_->gave_up()) scaled = scale(true);
        if (scaled == Status::ok) return write(planes);
        if (scaled != Status::unsupported_format) return scaled;
      }
      if (pixels_.size() < bytes) pixels_ = std::vector<uint8_t>(bytes);
      const Slot slot{pixels_.data(), ptrdiff_t(width) * 3, height, width};
      const Status decoded = pixels(data, size, header, window, filter, limits, slot);
      return decoded == Status::ok ? write(slot.at, height, width) : decoded;
    });
  }
  if (large) std::vector<uint8_t>().swap(pixels_);
  if (large && status != Status::ok) encoder_.release();
  return status;
}

Status Worker::run(const uint8_t* data, size_t size, const Header& header, const Window& window, Filter filter,
                   const Limits& limits, const Slot& slot, bool plain) {
  const bool swap = header.orientation >= 5;
  const int rows = swap ? slot.width : slot.height, columns = swap ? slot.height : slot.width;
  const Box box = stored(window, header);
  Region region;
  const int d = region.denominator = shrunk_by(header, window, slot.height, slot.width, limits);
  const int height = shrunk(header.height, d), width = shrunk(header.width, d);
  const Axis& vertical = axes_.get(filter, box.top / d, box.height / d, height, rows);
  const Axis& horizontal = axes_.get(filter, box.left / d, box.width / d, width, columns);
  region.matte = limits.matte;
  region.gray = limits.channels == 1;
  region.top = vertical.low();
  region.height = vertical.high() - region.top;
  region.left = std::max(horizontal.low() - kContext, 0);
  region.width = std::min(horizontal.high() + kContext, width) - region.left;
  RowReader& reader = this->reader(header);
  reader.stop = stopped;
  Status status = reader.start(data, size, header, region, plain);
  if (status != Status::ok) return status;
  Resampler& resampler = resamplers_[0];
  resampler.begin(&vertical, &horizontal, reader.left(), target(slot, limits.channels, header, window), limits.channels);
  const size_t shown = size_t(region.left + region.width - reader.left());  // pixels of a row
  for (int left = region.height; left > 0;) {
    if (is_set(stopped)) {
      reader.release();
      return Status::cancelled;
    }
    const RowReader::Rows rows = reader.rows();
    if (!rows.count) {
      if (is_set(stopped)) continue;
      status = reader.finish();
      return status == Status::ok ? Status::corrupt : status;
    }
    const int64_t begun = clock_ns();
    const int count = std::min(rows.count, left);
    if (reader.channels() == limits.channels) resampler.push(rows.at, rows.stride, count);
    else resampler.push(gray_rows(rows, count, shown, gray_), shown, count);
    resize_ns += clock_ns() - begun;
    left -= rows.count;
  }
  return reader.finish();
}

}  // namespace fastfeed
