#include "batch/executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "batch/pool.h"
#include "decode/probe.h"
#include "system/system.h"
#include "ops/statistics.h"
#include "pixels/tables.h"
#include "system/admission.h"

namespace fastfeed {
namespace {

constexpr size_t kLargeImage = size_t(64) << 20;  // bytes: all threads together hold at most a gigabyte of larger ones

// Adds the time since the last call to one of the stages.
class Watch {
 public:
  Watch() : now_(clock_ns()) {}
  void lap(int64_t& stage) {
    const int64_t now = clock_ns();
    stage += now - now_;
    now_ = now;
  }

 private:
  int64_t now_;
};

Cut cut_of(const Values& values, size_t row) {
  Cut cut;
  std::copy_n(values.boxes + 4 * row, 4, cut.box);
  std::copy_n((values.limits ? values.limits : values.boxes) + 4 * row, 4, cut.limit);
  std::copy_n(values.flips + 2 * row, 2, cut.flip);
  return cut;
}

Filter filter_of(const Program& program, const Values& values, size_t row) {
  return values.filters ? Filter(values.filters[row]) : program.filter;
}

Slot slot_of(const Image& image) { return {image.at, ptrdiff_t(image.row()), image.height, image.width}; }

// Cuts a window out of pixels.
void cut_pixels(const Program& program, const Image& source, const Values& values, size_t row, const Image& into,
                Worker& worker) {
  const Border border = values.limits ? program.border : Border();
  cut(source, cut_of(values, row), border, filter_of(program, values, row), slot_of(into), worker.scratch);
}

// Decodes the window of an encoded sample.
Status decode_window(const Program& program, const Sample& sample, const Values& values, size_t row, const Image& into,
                     Worker& worker) {
  const Border border = values.limits ? program.border : Border();
  const Filter filter = filter_of(program, values, row);
  Limits limits = program.limits;
  if (values.filters) limits.enlarge = program.enlarge_by_filter[int(filter)];
  return cut_with_border(cut_of(values, row), border, slot_of(into), into.channels, worker.scratch,
                         [&](const double* box, const bool* flip, const Slot& slot) {
                           const Window window{box[0], box[1], box[2], box[3], flip[0], flip[1]};
                           return worker.decode(sample.data, sample.size, window, filter, limits, slot);
                         });
}

// The whole image, shrunk as far as its finest window allows; in the DCT domain, where it is encoded. `room`: taken for
// a large one.
Status shrink_whole(const Program& program, const Sample& sample, const Values& values, size_t first, Image& whole,
                    Worker& worker, std::optional<Admission>& room) {
  double least[2] = {HUGE_VAL, HUGE_VAL};
  for (size_t row = first; row < first + size_t(program.views); ++row)
    for (int k = 0; k < 2; ++k) least[k] = std::min(least[k], values.boxes[4 * row + 2 + size_t(k)]);
  const int by = denominator(least[0], least[1], program.height, program.width, program.limits.enlarge);
  if (!program.encoded && by == 1) return Status::ok;
  const Image pixels = whole;
  whole.height = (sample.height + by - 1) / by;
  whole.width = (sample.width + by - 1) / by;
  if (program.encoded && whole.bytes() > kLargeImage) {
    const double enlarge = program.limits.enlarge;
    const int decoded_by = denominator(sample.height, sample.width, whole.height, whole.width, enlarge);
    room.emplace(whole.bytes() + held_bytes(sample.header, decoded_by), worker.stopped);
    if (room->stopped()) return Status::cancelled;
  }
  whole.at = worker.scratch.memory(whole.bytes());
  if (!program.encoded) {
    const Cut all{{0, 0, double(sample.height), double(sample.width)}, {false, false}, {}};
    cut(pixels, all, Border(), program.filter, slot_of(whole), worker.scratch);
    return Status::ok;
  }
  const Window window{0, 0, double(sample.height), double(sample.width), false, false};
  return worker.decode(sample.data, sample.size, window, program.filter, program.limits, slot_of(whole), room.has_value());
}

// The pixels that views are cut from, and the windows in them.
class Whole {
 public:
  Whole(const Program& program, const Values& values, size_t first, const Sample& sample, const Image& image)
      : scaled_(values), boxes_(size_t(program.views) * 4), limits_(values.limits ? boxes_.size() : 0) {
    const double unit[2] = {double(image.height) / sample.height, double(image.width) / sample.width};
    for (size_t i = 0; i < boxes_.size(); ++i) {
      boxes_[i] = values.boxes[4 * first + i] * unit[i % 2];
      if (values.limits) limits_[i] = values.limits[4 * first + i] * unit[i % 2];
    }
    scaled_.boxes = boxes_.data();
    scaled_.limits = values.limits ? limits_.data() : nullptr;
    scaled_.flips = values.flips + 2 * first;
  }
  const Values& values() const { return scaled_; }

 private:
  Values scaled_;
  std::vector<double> boxes_, limits_;
};

void planar_bytes(const Image& image, uint8_t* out) {
  const size_t pixels = image.pixels(), channels = size_t(image.channels);
  for (size_t c = 0; c < channels; ++c)
    for (size_t i = 0; i < pixels; ++i) out[c * pixels + i] = image.at[i * channels + c];
}

uint16_t upper_half(uint32_t bits, int dropped) {  // rounded to the nearest, ties to even
  return uint16_t((bits + (1u << (dropped - 1)) - 1 + (bits >> dropped & 1)) >> dropped);
}

// The nearest of 16 bits to a number within their range.
uint16_t half_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = uint16_t(bits >> 16 & 0x8000);
  const float size = std::fabs(value);
  if (size < 0x1p-14f) return uint16_t(sign | uint16_t(std::nearbyint(size * 0x1p24f)));
  return uint16_t(sign | upper_half((bits & 0x7fffffff) - (112u << 23), 13));
}

// Tables by which an image gets mean 0 and standard deviation 1 on the scale of 0..1.
EntryTables standardizing(const Conversion& how, const Image& image) {
  const int channels = image.channels, size = how.tables->size;
  uint64_t sums[3] = {};
  sum(image.at, image.pixels(), channels, sums);
  const uint64_t total = sums[0] + sums[1] + sums[2], squares = sum_of_squares(image.at, image.bytes());
  const double numbers = double(image.bytes()), mean = double(total) / numbers;
  const double spread = std::sqrt(std::max(0.0, double(squares) / numbers - mean * mean));
  const double deviation = std::max(spread, 255 / std::sqrt(numbers));
  std::vector<uint8_t> entries(size_t(256 * channels * size));
  for (int v = 0; v < 256; ++v)
    for (int c = 0; c < channels; ++c) {
      uint8_t* const entry = entries.data() + (v * channels + c) * size;
      const float value = float((v - mean) / deviation);
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      const bool is_half = how.standardized == Conversion::Standardized::float16;
      const uint16_t small = is_half ? half_of(value) : upper_half(bits, 16);
      if (size == 4) std::memcpy(entry, &bits, 4);
      else std::memcpy(entry, &small, 2);
    }
  return EntryTables(entries.data(), channels, size);
}

}  // namespace

void convert_image(const Conversion& how, const Image& image, const Tables& tables, uint8_t* out) {
  if (!how.tables) {
    if (how.planar && image.channels > 1) planar_bytes(image, out);
    else if (image.at != out) std::memcpy(out, image.at, image.bytes());
    return;
  }
  if (how.standardized != Conversion::Standardized::none)
    return convert(image.at, out, image.pixels(), standardizing(how, image), how.planar);
  if (tables.count) convert(image.at, out, image.pixels(), how.tables->after(tables.of, tables.count), how.planar);
  else convert(image.at, out, image.pixels(), *how.tables, how.planar);
}

Status run_sample(const Program& program, const Values& values, size_t index, const Sample& sample, uint8_t* out,
                  size_t row_bytes, Worker& worker, Spent& spent) {
  Watch watch;
  if (program.wait_ns) {
    pause_ns(program.wait_ns);
    watch.lap(spent.decode);
    return Status::ok;
  }
  Scratch& scratch = worker.scratch;
  const Scratch::Frame frame(scratch);
  const size_t views = size_t(program.views), first = index * views;
  std::optional<Admission> room;
  Image source{const_cast<uint8_t*>(sample.data), sample.height, sample.width, program.channels};
  if (program.whole && values.boxes) {
    const Status status = shrink_whole(program, sample, values, first, source, worker, room);
    if (status != Status::ok) return status;
  }
  std::optional<Whole> windows;
  if (program.whole && values.boxes) windows.emplace(program, values, first, sample, source);
  for (size_t view = 0; view < views; ++view, out += row_bytes) {
    if (is_set(worker.stopped)) return Status::cancelled;
    const size_t row = first + view;
    const Scratch::Frame of_view(scratch);
    const bool bytes = !program.conversion.tables;
    const bool measured = program.conversion.standardized != Conversion::Standardized::none;
    Image image{out, program.height, program.width, program.channels};
    if (!bytes || program.conversion.planar || image.bytes() != row_bytes) image.at = scratch.memory(image.bytes());
    if (windows) {
      cut_pixels(program, source, windows->values(), view, image, worker);
    } else if (program.encoded) {
      const Status status = decode_window(program, sample, values, row, image, worker);
      if (status != Status::ok) return status;
    } else if (values.boxes) {
      cut_pixels(program, source, values, row, image, worker);
    } else {
      std::memcpy(image.at, source.at + view * image.bytes(), image.bytes());
    }
    watch.lap(spent.decode);
    Tables tables;
    if (!program.layers.empty()) {
      const Status status = run_layers(program.layers, values.layers.data(), row, program.noise, image, scratch,
                                       bytes || measured ? nullptr : &tables);
      if (status != Status::ok) return status;
      watch.lap(spent.augment);
    }
    if (image.height != program.out_height || image.width != program.out_width)
      throw std::invalid_argument("the layers of a program lead to another size");
    convert_image(program.conversion, image, tables, out);
    watch.lap(spent.convert);
  }
  return Status::ok;
}

}  // namespace fastfeed
