#include "kernel.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "libjpeg.h"
#include "png.h"
#include "pool.h"
#include "system.h"
#include "tiff.h"
#include "webp.h"

namespace fastfeed {
namespace {

constexpr int64_t kDensePixels = 16000000;  // beyond both, no photograph
constexpr int64_t kPixelsPerByte = 4000;
constexpr uint64_t kKeptPixels = 4000000;  // of a result: memory beyond that is freed with the image
constexpr int kContext = 2;  // pixels next to a region that smooth chroma upsampling reads

struct Box {
  double top, left, height, width;
};

// The window in stored pixels (decode/orientation.py has the same table).
Box stored(const Window& w, int orientation, double height, double width) {
  const double bottom = height - w.top - w.height, right = width - w.left - w.width;
  switch (orientation) {
    case 2: return {w.top, right, w.height, w.width};
    case 3: return {bottom, right, w.height, w.width};
    case 4: return {bottom, w.left, w.height, w.width};
    case 5: return {w.left, w.top, w.width, w.height};
    case 6: return {right, w.top, w.width, w.height};
    case 7: return {right, bottom, w.width, w.height};
    case 8: return {w.left, bottom, w.width, w.height};
    default: return {w.top, w.left, w.height, w.width};
  }
}

// Where stored pixel (y, x) of the result is written, after rotation and flips.
Target target(const Slot& slot, int orientation, bool flip_rows, bool flip_columns) {
  const bool swap = orientation >= 5;
  // stored rows run upwards on the display in 3, 4; to the left in 6, 7. Stored columns: to the left in 2, 3;
  // upwards in 7, 8
  bool up = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  bool leftwards = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  up ^= flip_rows, leftwards ^= flip_columns;
  const ptrdiff_t down = up ? -slot.row : slot.row, right = leftwards ? -3 : 3;
  uint8_t* at = slot.at + (up ? slot.row * (slot.height - 1) : 0) + (leftwards ? ptrdiff_t(3) * (slot.width - 1) : 0);
  return swap ? Target{at, right, down} : Target{at, down, right};
}

// A window that the image does not have is the caller's mistake, not the file's. A pixel of rounding is tolerated.
void check(const Window& w, const Header& header) {
  const bool sane = w.height > 0 && w.width > 0 && w.top > -1 && w.left > -1 &&
                    w.top + w.height < header.shown_height() + 1 && w.left + w.width < header.shown_width() + 1;
  if (!sane) throw std::invalid_argument("a window lies outside its image");
}

int shrunk(int length, int denominator) { return (length + denominator - 1) / denominator; }

int shrunk_by(const Header& header, const Window& w, int height, int width, const Limits& limits) {
  // a JPEG in the DCT domain, a lossy WebP by means of its planes
  const bool shrinks = header.format == Format::jpeg ||
                       (header.format == Format::webp && !header.lossless && header.color == 2);
  return shrinks ? denominator(w.height, w.width, height, width, limits.enlarge) : 1;
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

Worker::Worker()
    : readers_{libjpeg_reader(libjpeg_huffman_reason().empty()), png_reader(), webp_reader(), tiff_reader()} {}

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
    return Status::bomb;
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
    for (int y = 0; y < slot.height; ++y) std::memset(slot.at + y * slot.row, 0, size_t(slot.width) * 3);
  return status;
}

Status Worker::recode(const uint8_t* data, size_t size, const Window& window, Filter filter, const Limits& limits,
                      int height, int width, const Coding& coding) {
  const uint64_t area = uint64_t(height) * uint64_t(width);
  const bool large = area > kKeptPixels;
  const size_t bytes = size_t(area) * 3;
  Status status = Status::bomb;
  if (area <= uint64_t(limits.max_pixels) && area <= SIZE_MAX / 8) {
    const auto room = [&](const Header& header) {
      return held_bytes(header, shrunk_by(header, window, height, width, limits)) +
             (large ? bytes * (coding.optimize ? 4 : 2) : 0);
    };
    status = checked(data, size, window, limits, room, [&](const Header& header) {
      if (pixels_.size() < bytes) pixels_ = std::vector<uint8_t>(bytes);
      const Slot slot{pixels_.data(), ptrdiff_t(width) * 3, height, width};
      const Status decoded = pixels(data, size, header, window, filter, limits, slot);
      if (decoded != Status::ok) return decoded;
      const int64_t begun = clock_ns();
      const bool written = writer_.write(slot.at, height, width, coding);
      encode_ns += clock_ns() - begun;
      return written ? Status::ok : Status::bomb;
    });
  }
  if (large) std::vector<uint8_t>().swap(pixels_);
  if (large && status != Status::ok) writer_.release();
  return status;
}

Status Worker::run(const uint8_t* data, size_t size, const Header& header, const Window& window, Filter filter,
                   const Limits& limits, const Slot& slot, bool plain) {
  const bool swap = header.orientation >= 5;
  const int rows = swap ? slot.width : slot.height, columns = swap ? slot.height : slot.width;
  const Box box = stored(window, header.orientation, header.shown_height(), header.shown_width());
  Region region;
  const int d = region.denominator = shrunk_by(header, window, slot.height, slot.width, limits);
  const int height = shrunk(header.height, d), width = shrunk(header.width, d);
  const Axis& vertical = axes_.get(filter, box.top / d, box.height / d, height, rows);
  const Axis& horizontal = axes_.get(filter, box.left / d, box.width / d, width, columns);
  region.matte = limits.matte;
  region.top = vertical.low();
  region.height = vertical.high() - region.top;
  region.left = std::max(horizontal.low() - kContext, 0);
  region.width = std::min(horizontal.high() + kContext, width) - region.left;
  RowReader& reader = this->reader(header);
  reader.stop = stopped;
  Status status = reader.start(data, size, header, region, plain);
  if (status != Status::ok) return status;
  resampler_.begin(&vertical, &horizontal, reader.left(),
                   target(slot, header.orientation, window.flip_rows, window.flip_columns));
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
    resampler_.push(rows.at, rows.stride, std::min(rows.count, left));
    resize_ns += clock_ns() - begun;
    left -= rows.count;
  }
  return reader.finish();
}

}  // namespace fastfeed
