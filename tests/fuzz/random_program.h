// A program of the executor, as random as its bytes, with the numbers of one sample.
#pragma once

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "checks.h"
#include "executor.h"
#include "expect.h"
#include "instruction_sets.h"

using namespace fastfeed;

namespace {

constexpr int kNoise = 1009, kSide = 64;

// Answers from the bytes of the input; zeros where there are no more.
class Ask {
 public:
  Ask(const uint8_t* at, size_t size) : at_(at), end_(at + size) {}
  int byte() { return at_ < end_ ? *at_++ : 0; }
  bool yes() { return byte() & 1; }
  int whole(int low, int high) { return low + int((byte() | unsigned(byte()) << 8) % unsigned(high - low + 1)); }
  double share() { return (byte() | byte() << 8) / 65535.0; }

  // A number that an op can be asked for; in wild programs now and then one that it cannot.
  double number(double low, double high, bool integer = false) {
    static const double odd[] = {std::nan(""), HUGE_VAL, -HUGE_VAL, 1e300, -1e300, 1e-300, 3e9, -3e9, 1e18, -1e18,
                                 -1, 0, 0.5, 256, 65536, 1e6};
    if (wild && byte() < 24) return odd[byte() % 16];
    const double value = low + share() * (high - low);
    return integer ? std::nearbyint(value) : value;
  }

  bool wild = false;

 private:
  const uint8_t *at_, *const end_;
};

// What one sample needs to run, and what owns its numbers.
struct Case {
  Program program;
  Values values;
  std::vector<double> boxes, limits;
  std::unique_ptr<bool[]> flips;
  std::deque<std::vector<double>> numbers;
  std::deque<std::vector<int64_t>> choices;
  std::vector<int64_t> filters;
};

struct Size {
  int height, width;
};

// A box within the image, whole pixels or not; `beyond`: or outside of it, with its limit.
void box(Ask& ask, Size image, bool beyond, double* into, double* limit) {
  const double side[2] = {double(image.height), double(image.width)};
  const bool pixels = ask.yes();
  for (int axis = 0; axis < 2; ++axis) {
    double length = ask.number(0.01, 1) * side[axis] * (beyond ? 3 : 1);
    if (pixels) length = std::max(std::floor(length), 1.0);
    const double room = side[axis] - length;
    double start = beyond ? ask.number(-2, 2) * side[axis] : ask.number(0, 1) * room;
    if (pixels) start = std::floor(start);
    into[axis] = start, into[axis + 2] = length;
    limit[axis] = ask.yes() ? 0 : ask.number(0, 0.5) * side[axis];
    limit[axis + 2] = (side[axis] - limit[axis]) * (ask.yes() ? 1 : ask.number(0.1, 1));
  }
}

std::vector<double> color(Ask& ask, int channels) {
  std::vector<double> result;
  for (int c = 0; c < channels; ++c) result.push_back(ask.number(0, 255, true));
  return result;
}

Op op_of(Ask& ask, int channels, bool resizes, bool inner, Size& size) {
  const auto& all = kinds();
  auto kind = all.begin();
  std::advance(kind, ask.byte() % int(all.size()));
  if (inner && (kind->second.code == Code::augmix || kind->second.code == Code::window)) kind = all.find("equalize");
  if (resizes) kind = all.find("window");
  Op op{kind->second.code, kind->second.numbers, {}, {}, 0};
  std::vector<double>& constants = op.constants;
  switch (op.code) {
    case Code::lut:
      for (int i = ask.yes() ? 256 : 256 * channels, v = ask.byte(), step = ask.byte(); i > 0; --i, v += step)
        constants.push_back(v & 255);
      if (ask.wild) constants.resize(size_t(ask.whole(0, 800)), ask.number(0, 255));
      break;
    case Code::blur: constants = {2.0 * ask.whole(0, 20) + 1}; break;
    case Code::warp: case Code::elastic: case Code::grid_distortion:
      constants = {double(ask.yes()), double(ask.whole(1, 4))};
      for (double c : color(ask, channels)) constants.push_back(c);
      if (op.code == Code::elastic)
        for (int n = 2 * ask.whole(0, 10) + 1, most = 16384 / n; n > 0; --n) constants.push_back(ask.whole(0, most));
      if (op.code == Code::grid_distortion) {
        constants.push_back(ask.whole(1, 8));
        op.numbers = 2 * int(constants.back()) + 2;
      }
      break;
    case Code::channels: constants = color(ask, 3); break;
    case Code::solarize_add: constants = {double(ask.whole(0, 256))}; break;
    case Code::erase: case Code::grid_mask: constants = color(ask, channels); break;
    case Code::window:
      if (resizes) size = {ask.whole(1, kSide), ask.whole(1, kSide)};
      constants = {resizes ? double(size.height) : 0, resizes ? double(size.width) : 0, ask.number(0, 3, true),
                   ask.number(0, 4, true)};
      for (double c : color(ask, channels)) constants.push_back(c);
      break;
    case Code::augmix:
      op.versions = ask.whole(1, 3);
      op.numbers = op.versions + 1;
      for (int depth = ask.whole(1, 2); depth > 0; --depth) {
        op.chain.emplace_back();
        for (int n = ask.whole(1, 2); n > 0; --n) op.chain.back().ops.push_back(op_of(ask, channels, false, true, size));
      }
      break;
    default: break;
  }
  if (ask.wild && ask.byte() < 4 && !constants.empty()) constants.resize(constants.size() - 1);
  return op;
}

// The numbers of one sample.
void numbers_of(Ask& ask, const Op& op, Size size, double* p) {
  const auto rectangle = [&] {
    for (int axis = 0; axis < 2; ++axis) {
      const double side = axis ? size.width : size.height, length = ask.number(0, side, true);
      p[axis] = ask.number(0, side - length, true), p[axis + 2] = length;
    }
  };
  switch (op.code) {
    case Code::brightness: case Code::contrast: p[0] = ask.number(0, 3); break;
    case Code::solarize: p[0] = ask.number(0, 256); break;
    case Code::solarize_add: p[0] = ask.number(0, 255, true); break;
    case Code::channels:
      for (int k = 0; k < 3; ++k) p[k] = ask.number(-1, 2, true);
      break;
    case Code::motion:
      p[0] = 2 * ask.number(0, 49, true) + 1, p[1] = ask.number(-1, 1), p[2] = ask.number(-1, 1);
      break;
    case Code::median: p[0] = 2 * ask.number(0, 7, true) + 1; break;
    case Code::elastic:
      p[0] = ask.number(0, 1e-4), p[1] = ask.number(0, 3 * kNoise, true), p[2] = ask.number(0, 3 * kNoise, true);
      break;
    case Code::grid_distortion:
      for (int k = 0; k < op.numbers; ++k) p[k] = ask.number(-size.width, 2 * size.width);
      break;
    case Code::posterize: p[0] = ask.number(0, 8, true); break;
    case Code::gamma: p[0] = ask.number(0.1, 5); break;
    case Code::saturation: case Code::sharpness: p[0] = ask.number(0, 4); break;
    case Code::hue: p[0] = ask.number(-0.5, 0.5); break;
    case Code::blur: p[0] = ask.number(0.01, 10); break;
    case Code::noise: p[0] = ask.number(0, 255), p[1] = ask.number(0, 3 * kNoise, true); break;
    case Code::jpeg: p[0] = ask.number(1, 100, true); break;
    case Code::warp: {
      const double identity[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
      const bool perspective = ask.yes(), whole = ask.yes();
      for (int k = 0; k < 9; ++k) {
        const double reach = k == 2 ? size.width : k == 5 ? size.height : k >= 6 ? (perspective ? 0.02 : 0) : 1;
        p[k] = identity[k] + ask.number(-reach, reach, whole && k < 6);
      }
      if (op.numbers > 9) p[9] = size.height, p[10] = size.width;
      break;
    }
    case Code::erase:
      rectangle();
      for (int k = 4; k < op.numbers; ++k) p[k] = ask.number(0, 255, true);
      break;
    case Code::erase_noise: rectangle(), p[4] = ask.number(0, 3 * kNoise, true); break;
    case Code::grid_mask:
      p[0] = ask.number(2, 70, true), p[1] = ask.number(0, 1);
      p[2] = ask.number(0, p[0], true), p[3] = ask.number(0, p[0], true);
      break;
    case Code::window:
      box(ask, size, !op.constants.empty() && op.constants.size() > 3 && op.constants[3] > 0, p, p + 6);
      p[4] = ask.yes(), p[5] = ask.yes();
      break;
    case Code::augmix:
      for (int k = 0; k < op.numbers; ++k) p[k] = ask.number(0, 1.0 / op.numbers);
      break;
    default: break;
  }
}

LayerValues values_of(Ask& ask, const Layer& layer, size_t rows, Size size, bool always, Case& all) {
  LayerValues values;
  all.choices.emplace_back();
  std::vector<int64_t>& choice = all.choices.back();
  for (size_t i = 0; i < rows; ++i) choice.push_back(ask.whole(always ? 0 : -1, int(layer.ops.size()) - 1));
  values.choice = choice.data();
  for (const Op& op : layer.ops) {
    OpValues own;
    all.numbers.emplace_back(rows * size_t(op.numbers));
    for (size_t i = 0; i < rows; ++i) numbers_of(ask, op, size, all.numbers.back().data() + i * size_t(op.numbers));
    own.numbers = all.numbers.back().data();
    for (int k = 0; k < op.versions; ++k)
      for (const Layer& part : op.chain) own.chains.push_back(values_of(ask, part, rows, size, false, all));
    values.ops.push_back(std::move(own));
  }
  return values;
}

const NoiseTables& noise() {
  static std::vector<int16_t> steps;
  static std::vector<uint8_t> gray;
  static NoiseTables tables;
  if (steps.empty()) {
    uint32_t state = 1;
    for (int i = 0; i < kNoise; ++i) {
      state = state * 1664525 + 1013904223;
      steps.push_back(int16_t(int(state >> 16) % 28672 - 14336));
      gray.push_back(uint8_t(state >> 24));
    }
    steps.shrink_to_fit(), gray.shrink_to_fit();
    tables = {steps.data(), gray.data(), kNoise, 4096};
  }
  return tables;
}

// Programs, and the numbers for one sample of the size given.
void make(Ask& ask, Sample& sample, Case& all) {
  Program& program = all.program;
  program.height = ask.whole(1, kSide), program.width = ask.whole(1, kSide);
  program.filter = Filter(ask.byte() & 3);
  program.border.mode = Border::Mode(ask.byte() & 3);
  for (uint8_t& each : program.border.fill) each = uint8_t(ask.byte());
  program.limits.max_pixels = 1 << 20;
  if (ask.yes()) program.limits.enlarge = 1.0;
  program.views = 1 + (ask.byte() & 1) * (ask.byte() % 3);
  program.whole = program.views > 1 || ask.byte() < 32;
  program.noise = noise();
  const size_t rows = size_t(program.views);

  const bool windows = program.encoded || ask.byte() >= 32;
  if (windows) {
    const bool limits = ask.yes();
    all.boxes.resize(rows * 4), all.limits.resize(rows * 4), all.flips.reset(new bool[rows * 2]);
    for (size_t i = 0; i < rows; ++i) {
      box(ask, {std::max(sample.height, 1), std::max(sample.width, 1)}, limits && program.border.mode != Border::none,
          all.boxes.data() + 4 * i, all.limits.data() + 4 * i);
      all.flips[2 * i] = ask.yes(), all.flips[2 * i + 1] = ask.yes();
    }
    all.values = {all.boxes.data(), all.flips.get(), limits ? all.limits.data() : nullptr, nullptr, {}};
    if (!program.whole && ask.yes()) {
      for (double& enlarge : program.enlarge_by_filter) enlarge = program.limits.enlarge;
      for (size_t i = 0; i < rows; ++i) all.filters.push_back(ask.whole(0, kFilters - 1));
      all.values.filters = all.filters.data();
    }
  } else {  // windows already
    program.whole = false;
    sample.height = program.height, sample.width = program.width;
  }

  Size size = {program.height, program.width};
  for (int n = ask.byte() % 5; n > 0; --n) {
    const bool resizes = ask.byte() < 40;
    program.layers.emplace_back();
    Size next = size;
    for (int k = resizes ? 1 : 1 + ask.byte() % 3; k > 0; --k)
      program.layers.back().ops.push_back(op_of(ask, program.channels, resizes, false, next));
    all.values.layers.push_back(values_of(ask, program.layers.back(), rows, size, resizes, all));
    size = next;
  }
  program.out_height = size.height, program.out_width = size.width;

  Conversion& conversion = program.conversion;
  conversion.planar = ask.yes();
  const int entry = ask.yes() ? 1 : ask.yes() ? 2 : 4;
  const int channels = ask.wild && ask.byte() < 8 ? ask.whole(1, 3) : program.channels == 1 ? 1 : 3;
  std::vector<uint8_t> table(256 * 3 * 4);
  unsigned value = unsigned(ask.byte());
  for (uint8_t& each : table) each = uint8_t(value = value * 5 + 1);
  using Standardized = Conversion::Standardized;
  if (entry > 1 && ask.byte() < 64)
    conversion.standardized =
        entry == 4 ? Standardized::float32 : ask.yes() ? Standardized::float16 : Standardized::bfloat16;
  if (entry > 1) conversion.tables = std::make_shared<EntryTables>(table.data(), channels, entry);
  if (ask.wild) {
    if (ask.byte() < 8) program.border.mode = Border::Mode(ask.whole(-1, 5));
    if (ask.byte() < 8) program.noise.length = 0;
    if (ask.byte() < 8) program.out_width += ask.whole(-2, 2);
  }
}

}  // namespace
