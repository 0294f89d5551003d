#include "batch/chain.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "batch/checks.h"
#include "ops/blend.h"
#include "ops/byte_tables.h"
#include "ops/colors.h"
#include "ops/distort.h"
#include "ops/erasing.h"
#include "ops/filters.h"
#include "ops/warps.h"
#include "pixels/tables.h"

namespace fastfeed {
namespace {

constexpr double kMost = 1e6;           // of a factor: far beyond what makes every byte 0 or 255
constexpr double kMostSharpness = 128;  // results of 16 bits with a sign
constexpr int kMostTaps = 99;           // of a line whose sum has 15 bits
constexpr int kMostKernel = 15;         // of a median
constexpr double kOffset = 1LL << 53;   // in a table of noise

int odd_within(double number, int most) { return whole_within(number, 1, most) | 1; }

void apply(Tables& tables, Image& image) {
  if (tables.count) look_up(image.at, image.at, image.bytes(), tables.of, tables.count);
  tables.count = 0;
}

// The table of an op that knows it beforehand; the number of tables, or 0 for other ops.
int known_table(const Op& op, const double* p, uint8_t (*table)[256]) {
  switch (op.code) {
    case Code::brightness: return brightness_table(within(p[0], 0, kMost), table[0]), 1;
    case Code::solarize: return solarize_table(p[0], table[0]), 1;
    case Code::solarize_add:
      return solarize_add_table(whole_within(p[0], 0, 255), int(op.constants[0]), table[0]), 1;
    case Code::posterize: return posterize_table(whole_within(p[0], 0, 8), table[0]), 1;
    case Code::invert: return invert_table(table[0]), 1;
    case Code::gamma: return gamma_table(within(p[0], 0, kMost), table[0]), 1;
    case Code::lut:
      for (size_t i = 0; i < op.constants.size(); ++i) table[i / 256][i % 256] = uint8_t(op.constants[i]);
      return int(op.constants.size() / 256);
    default: return 0;
  }
}

// The table of an op that has to look at the image first.
int measured_table(const Op& op, const double* p, const Image& image, uint8_t (*table)[256]) {
  switch (op.code) {
    case Code::contrast: return contrast_table(image, within(p[0], 0, kMost), table[0]), 1;
    case Code::equalize: return equalize_tables(image, table), image.channels;
    case Code::autocontrast: return autocontrast_tables(image, table), image.channels;
    default: return 0;
  }
}

struct Fill {
  uint8_t of[3];
  Fill(const double* constants, int channels) {
    for (int c = 0; c < channels && c < 3; ++c) of[c] = uint8_t(within(constants[c], 0, 255));
  }
};

// The part of a rectangle that lies in the image: top, left, height, width.
struct Area {
  int top, left, height, width;
  Area(const double* p, const Image& image)
      : top(whole_within(p[0], 0, image.height)), left(whole_within(p[1], 0, image.width)),
        height(whole_within(p[2], 0, image.height - top)), width(whole_within(p[3], 0, image.width - left)) {}
};

// A border of two constants or more: its mode, and the color outside.
Border border_of(const double* constants, int channels) {
  Border border;
  border.mode = Border::Mode(int(constants[0]));
  for (int k = 0; k < channels && k < 3; ++k) border.fill[k] = uint8_t(constants[1 + k]);
  return border;
}

// constants: size of the result (0, 0: unchanged), filter, mode of the border, its color. numbers: box, flips, limit.
void cut_window(const Op& op, const double* p, Image& image, Scratch& scratch) {
  const double* c = op.constants.data();
  Cut cut;
  std::copy(p, p + 4, cut.box);
  std::copy(p + 6, p + 10, cut.limit);
  cut.flip[0] = p[4] != 0, cut.flip[1] = p[5] != 0;
  const Border border = border_of(c + 3, image.channels);
  const int height = c[0] ? int(c[0]) : image.height, width = c[0] ? int(c[1]) : image.width;
  uint8_t* out = scratch.memory(size_t(height) * size_t(width) * size_t(image.channels));
  cut_in_place(image, cut, border, Filter(int(c[2])), height, width, scratch, out);
}

// constants: interpolation, mode of the border, its color. numbers: the matrix, and the size if that changes.
void warp_image(const Op& op, const double* p, Image& image, Scratch& scratch) {
  Image out = image;
  if (op.numbers > 9) {
    out.height = whole_within(p[9], 1, kMostSide), out.width = whole_within(p[10], 1, kMostSide);
    out.at = scratch.memory(out.bytes());
  } else if (is_identity(p)) {
    return;
  }
  const Scratch::Frame frame(scratch);
  const double* c = op.constants.data();
  const Border border = border_of(c + 1, image.channels);
  const WarpSource source = copy_with_border(image, border, p, out.height, out.width, scratch);
  warp(source, p, Interpolation(int(c[0])), out);
  image = out;
}

// constants: as those of a warp, then the weights of a blur. numbers: the scale, and offsets into the noise.
void bend(const Op& op, const double* p, const NoiseTables& noise, Image& image, Scratch& scratch) {
  const double* const weights = op.constants.data() + 2 + image.channels;
  Elastic how{weights, int(op.constants.size()) - 2 - image.channels, float(within(p[0], 0, 1)), {}, noise.steps,
              noise.length};
  for (int k = 0; k < 2; ++k) how.offsets[k] = int64_t(within(p[1 + k], 0, kOffset));
  elastic(image, how, border_of(op.constants.data() + 1, image.channels), Interpolation(int(op.constants[0])), scratch);
}

// numbers: the shares of the image and of its versions.
Status augmix(const Op& op, const double* p, const OpValues& values, size_t row, const NoiseTables& noise, Image& image,
              Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const uint8_t* versions[17] = {image.at};
  const size_t depth = op.chain.size();
  for (int k = 0; k < op.versions; ++k) {
    Image version = image;
    version.at = scratch.memory(image.bytes());
    std::memcpy(version.at, image.at, image.bytes());
    const LayerValues* chain = values.chains.data() + size_t(k) * depth;
    const Status status = run_layers(op.chain, chain, row, noise, version, scratch, nullptr);
    if (status != Status::ok) return status;
    if (version.height != image.height || version.width != image.width)
      throw std::invalid_argument("the layers of augmix must keep the size of the image");
    versions[k + 1] = version.at;
  }
  double shares[17];
  for (int k = 0; k <= op.versions; ++k) shares[k] = within(p[k], 0, 1);
  weighted_sum(image, versions, shares, op.versions + 1, scratch);
  return Status::ok;
}

Status change(const Op& op, const OpValues& values, size_t row, const NoiseTables& noise, Image& image,
              Scratch& scratch) {
  const double *p = values.numbers + row * size_t(op.numbers), *c = op.constants.data();
  const int channels = image.channels;
  switch (op.code) {
    case Code::grayscale: grayscale(image); break;
    case Code::channels: {
      const int from[3] = {whole_within(p[0], -1, 2), whole_within(p[1], -1, 2), whole_within(p[2], -1, 2)};
      pick_channels(image, from, Fill(c, 3).of);
      break;
    }
    case Code::saturation: saturation(image, within(p[0], 0, kMost)); break;
    case Code::hue: hue(image, within(p[0], -kMost, kMost)); break;
    case Code::sharpness: sharpness(image, within(p[0], 0, kMostSharpness), scratch); break;
    case Code::blur: blur(image, within(p[0], 1e-3, kMost), int(c[0]), scratch); break;
    case Code::motion:
      motion_blur(image, odd_within(p[0], kMostTaps), within(p[1], -1, 1), within(p[2], -1, 1), scratch);
      break;
    case Code::median: median_blur(image, odd_within(p[0], kMostKernel), scratch); break;
    case Code::noise:
      fastfeed::noise(image, within(p[0], 0, 255), int64_t(within(p[1], 0, kOffset)), noise.steps, noise.length,
                      noise.per_unit);
      break;
    case Code::jpeg: jpeg_compression(image, whole_within(p[0], 1, 100), scratch); break;
    case Code::warp: warp_image(op, p, image, scratch); break;
    case Code::elastic: bend(op, p, noise, image, scratch); break;
    case Code::grid_distortion:
      grid_distortion(image, p, int(c[2 + channels]), border_of(c + 1, channels), Interpolation(int(c[0])), scratch);
      break;
    case Code::erase: {
      const Area area(p, image);
      const Fill fill(op.numbers > 4 ? p + 4 : c, channels);  // numbers: the box, and the color if that is drawn
      erase(image, area.top, area.left, area.height, area.width, fill.of);
      break;
    }
    case Code::erase_noise: {
      const Area area(p, image);
      erase_with_noise(image, area.top, area.left, area.height, area.width, int64_t(within(p[4], 0, kOffset)),
                       noise.gray, noise.length);
      break;
    }
    case Code::grid_mask: {
      const int unit = whole_within(p[0], 1, kMostSide), side = int(std::nearbyint(within(p[1], 0, 1) * unit));
      const int top = whole_within(p[2], -kMostSide, kMostSide), left = whole_within(p[3], -kMostSide, kMostSide);
      grid_mask(image, unit, side, top, left, Fill(c, channels).of, scratch);
      break;
    }
    case Code::window: cut_window(op, p, image, scratch); break;
    case Code::augmix: return augmix(op, p, values, row, noise, image, scratch);
    default: break;  // tables
  }
  return Status::ok;
}

}  // namespace

void Tables::then(const uint8_t (*next)[256], int number) {
  if (!count) {
    std::memcpy(of, next, size_t(number) * 256);
    count = number;
    return;
  }
  const int made = std::max(count, number);
  for (int c = made - 1; c >= 0; --c) {  // the first table last: the others may be made from it
    const uint8_t *first = of[count == 1 ? 0 : c], *second = next[number == 1 ? 0 : c];
    for (int v = 0; v < 256; ++v) of[c][v] = second[first[v]];
  }
  count = made;
}

Status run_layers(const std::vector<Layer>& layers, const LayerValues* values, size_t row, const NoiseTables& noise,
                  Image& image, Scratch& scratch, Tables* left) {
  Tables own;
  Tables& tables = left ? *left : own;
  for (size_t k = 0; k < layers.size(); ++k) {
    const int64_t choice = values[k].choice[row];
    if (choice < 0) continue;
    const Op& op = layers[k].ops[size_t(choice)];
    const OpValues& of_op = values[k].ops[size_t(choice)];
    const double* p = of_op.numbers + row * size_t(op.numbers);
    uint8_t table[3][256];
    if (const int number = known_table(op, p, table)) {
      tables.then(table, number);
      continue;
    }
    apply(tables, image);
    if (const int number = measured_table(op, p, image, table)) {
      tables.then(table, number);
      continue;
    }
    const Status status = change(op, of_op, row, noise, image, scratch);
    if (status != Status::ok) return status;
  }
  if (!left) apply(tables, image);
  return Status::ok;
}

}  // namespace fastfeed
