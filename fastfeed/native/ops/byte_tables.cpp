#include "ops/byte_tables.h"

#include <algorithm>
#include <cmath>

#include "pixels/tables.h"
#include "ops/statistics.h"

namespace fastfeed {
namespace {

// Pillow cuts off where this rounds: half a level less, but whole numbers must stay what they are, so by more than
// float's errors in a product and a sum.
constexpr double kCut = 0.5 - 1.0 / (1 << 14);

// slope * byte + shift, cut and clipped; slope >= 0, and both within thousands.
//
// OpenCV rounds once, to float, what a fused multiply-add gives. So does this: in double the product is exact, with its
// 32 bits, and so is the sum wherever a bit lost might change a byte.
void line_table(double slope, double shift, uint8_t* table) {
  const double a = float(slope), b = float(shift - kCut);
  constexpr float kWhole = 12582912;  // 1.5 * 2^23: added to less than 2^22, it leaves whole numbers, ties to even
  for (int v = 0; v < 256; ++v) {
    const float level = (float(v * a + b) + kWhole) - kWhole;
    table[v] = uint8_t(std::min(std::max(level, 0.f), 255.f));
  }
}

void same(uint8_t* table) {
  for (int v = 0; v < 256; ++v) table[v] = uint8_t(v);
}

// The table of Pillow's ImageOps.equalize for one channel.
void equalize(const uint32_t* counts, uint64_t pixels, uint8_t* table) {
  int last = 255;
  while (last > 0 && !counts[last]) --last;
  const uint64_t step = (pixels - counts[last]) / 255;
  if (!step) return same(table);
  double before[256];  // below 2^53, so that a quotient cut off is right; divisions of integers are slower
  uint64_t sum = step / 2;
  for (int v = 0; v < 256; ++v) {
    before[v] = double(int64_t(sum));
    sum += counts[v];
  }
  const double divisor = double(int64_t(step));
  for (int v = 0; v < 256; ++v) table[v] = uint8_t(int(std::min(before[v] / divisor, 255.0)));
}

// The table of Pillow's ImageOps.autocontrast for one channel, in integers, where Pillow's floats sometimes miss one.
void stretch(int low, int high, uint8_t* table) {
  if (high <= low) return same(table);
  for (int v = 0; v < 256; ++v) {
    const int level = std::min(std::max(v - low, 0), high - low) * 255;
    table[v] = uint8_t(int(double(level) / (high - low)));  // as exact as a division of integers, and faster
  }
}

}  // namespace

void brightness_table(double factor, uint8_t* table) { line_table(factor, 0, table); }

void solarize_table(double threshold, uint8_t* table) {
  for (int v = 0; v < 256; ++v) table[v] = uint8_t(threshold > v ? v : 255 - v);
}

void solarize_add_table(int amount, int threshold, uint8_t* table) {
  for (int v = 0; v < 256; ++v) table[v] = uint8_t(v < threshold ? std::min(v + amount, 255) : v);
}

void posterize_table(int bits, uint8_t* table) {
  const int mask = 0xFF00 >> bits & 0xFF;
  for (int v = 0; v < 256; ++v) table[v] = uint8_t(v & mask);
}

void invert_table(uint8_t* table) {
  for (int v = 0; v < 256; ++v) table[v] = uint8_t(255 - v);
}

// As torchvision: 255.999 times the power, cut.
void gamma_table(double gamma, uint8_t* table) {
  for (int v = 0; v < 256; ++v) table[v] = uint8_t((255 + 1 - 1e-3) * std::pow(v / 255.0, gamma));
}

// The mean of the grays is that of Pillow but for not rounding each of them.
void contrast_table(const Image& image, double factor, uint8_t* table) {
  uint64_t sums[3];
  sum(image.at, image.pixels(), image.channels, sums);
  const double share = 1.0 / double(image.pixels());
  const auto mean = [&](int c) { return double(sums[c]) * share; };
  const double gray = image.channels == 1 ? mean(0) : (19595 * mean(0) + 38470 * mean(1) + 7471 * mean(2)) / 65536;
  line_table(factor, int(gray + 0.5) * (1 - factor), table);
}

void equalize_tables(const Image& image, uint8_t (*tables)[256]) {
  uint32_t counts[3][256];
  count(image.at, image.pixels(), image.channels, counts);
  for (int c = 0; c < image.channels; ++c) equalize(counts[c], image.pixels(), tables[c]);
}

void autocontrast_tables(const Image& image, uint8_t (*tables)[256]) {
  uint8_t least[3], greatest[3];
  extremes(image.at, image.pixels(), image.channels, least, greatest);
  for (int c = 0; c < image.channels; ++c) stretch(least[c], greatest[c], tables[c]);
}

}  // namespace fastfeed
