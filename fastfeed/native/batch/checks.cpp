#include "batch/checks.h"

#include <numeric>

namespace fastfeed {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

bool is_whole(double number, double low, double high) {
  return number >= low && number <= high && number == std::floor(number);
}

// A color of one byte per channel, from constant `first` on.
bool has_color(const Op& op, size_t first, int channels) {
  if (op.constants.size() < first + size_t(channels)) return false;
  return std::all_of(op.constants.begin() + ptrdiff_t(first), op.constants.begin() + ptrdiff_t(first) + channels,
                     [](double c) { return c >= 0 && c <= 255; });
}

// How a warp looks: its interpolation, the mode of its border and the color.
bool has_look(const Op& op, int channels) {
  return has_color(op, 2, channels) && is_whole(op.constants[0], 0, 1) && is_whole(op.constants[1], 1, 4);
}

bool has_constants(const Op& op, int channels) {
  const std::vector<double>& c = op.constants;
  switch (op.code) {
    case Code::lut:
      return (c.size() == 256 || c.size() == 256 * size_t(channels)) &&
             std::all_of(c.begin(), c.end(), [](double v) { return is_whole(v, 0, 255); });
    case Code::blur: return !c.empty() && is_whole(c[0], 1, 65535);
    case Code::warp: return has_look(op, channels);
    case Code::elastic:
      return has_look(op, channels) && c.size() % 2 == size_t(channels + 3) % 2 && c.size() > size_t(channels + 2) &&
             std::all_of(c.begin() + 2 + channels, c.end(), [](double v) { return is_whole(v, 0, 1 << 14); }) &&
             std::accumulate(c.begin() + 2 + channels, c.end(), 0.0) <= 1 << 15;  // times 2^15 fits into 31 bits
    case Code::grid_distortion:
      return has_look(op, channels) && c.size() == size_t(channels + 3) && is_whole(c.back(), 1, 64);
    case Code::solarize_add: return !c.empty() && is_whole(c[0], 0, 256);
    case Code::channels: return has_color(op, 0, 3);
    case Code::erase: return op.numbers > 4 || has_color(op, 0, channels);
    case Code::grid_mask: return has_color(op, 0, channels);
    case Code::window:
      return has_color(op, 4, channels) && is_whole(c[0], 0, kMostSide) && is_whole(c[1], c[0] ? 1 : 0, kMostSide) &&
             is_whole(c[2], 0, kFilters - 1) && is_whole(c[3], 0, 4);
    default: return true;
  }
}

void check_layers(const std::vector<Layer>& layers, const Program& program) {
  for (const Layer& layer : layers)
    for (const Op& op : layer.ops) {
      require(has_constants(op, program.channels), "an op lacks constants, or they are out of range");
      if (op.code == Code::augmix) {
        require(op.versions >= 1 && op.versions <= 16, "augmix mixes 1 to 16 versions");
        check_layers(op.chain, program);
      }
      const NoiseTables& noise = program.noise;
      if (op.code == Code::noise || op.code == Code::elastic)
        require(noise.steps && noise.length > 0 && noise.per_unit > 0, "noise needs a table of steps");
      if (op.code == Code::erase_noise) require(noise.gray && noise.length > 0, "noise needs a table of levels");
    }
}

bool is_side(int pixels) { return pixels >= 1 && pixels <= kMostSide; }

}  // namespace

void check(const Program& program) {
  require(is_side(program.height) && is_side(program.width) && is_side(program.out_height) &&
              is_side(program.out_width), "a program needs a height and a width");
  require(program.channels == 3 || program.channels == 1, "a program needs 1 or 3 channels");
  require(program.views >= 1 && program.views <= 65536, "a program needs 1 to 65536 views");
  const double most = double(kMostSide) * kMostSide;  // so that no product of sides, channels and views is too large
  require(double(program.height) * program.width * program.views <= most &&
              double(program.out_height) * program.out_width * program.views <= most, "a program needs smaller images");
  require(int(program.filter) >= 0 && int(program.filter) < kFilters, "a program needs a filter");
  require(program.border.mode >= 0 && program.border.mode <= 4, "a program needs a mode of its border");
  require(program.limits.enlarge > 0 && std::isfinite(program.limits.enlarge), "enlarge must be > 0");
  const EntryTables* tables = program.conversion.tables.get();
  require(!tables || (tables->channels == program.channels && (tables->size == 2 || tables->size == 4)),
          "a table must be (256, channels) of 2 or 4 bytes");
  check_layers(program.layers, program);
}

}  // namespace fastfeed
