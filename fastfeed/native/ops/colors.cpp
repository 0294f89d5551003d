#include "ops/colors.h"

#include <algorithm>
#include <cmath>

#include "pixels/forms.h"
#include "pixels/tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/colors.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "pixels/lookups-inl.h"
#include "pixels/pixels-inl.h"

#ifndef FASTFEED_COLORS_ONCE
#define FASTFEED_COLORS_ONCE
namespace fastfeed {
namespace {

// Saturation up to a factor of 2, as cv2.transform with a matrix in 1/1024: channel c of a pixel becomes
// (red * r + green * g + blue * b + own * c + 1) >> 10, clipped. OpenCV rounds and Pillow cuts off: 512 less 511.
struct Weights {
  int red, green, blue, own;
};

// Hue: the channels of a pixel are turned by `thirds`, and forwards by less than a sixth of the circle, or backwards,
// which is forwards with two channels swapped.
struct Turn {
  bool backwards;
  int thirds;  // 0, 1 or 2
  const uint8_t* shares;  // of 256 differences, or null for no turn but by thirds
};

}  // namespace
}  // namespace fastfeed
#endif

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR

void mix_channels(uint8_t* rgb, size_t pixels, const Weights& w) {
  for (uint8_t* p = rgb; p < rgb + 3 * pixels; p += 3) {
    const int gray = w.red * p[0] + w.green * p[1] + w.blue * p[2] + 1;
    for (int c = 0; c < 3; ++c) p[c] = uint8_t(std::min(std::max((gray + w.own * p[c]) >> 10, 0), 255));
  }
}

#else

void mix_channels(uint8_t* rgb, size_t pixels, const Weights& w) {
  const U8 d;
  const V8 ones = hn::Set(d, 1);
  // of red and green, and of blue and 1
  const V16 first0 = pair_of(w.red + w.own, w.green), then0 = pair_of(w.blue, 1);
  const V16 first1 = pair_of(w.red, w.green + w.own), first2 = pair_of(w.red, w.green);
  const V16 then2 = pair_of(w.blue + w.own, 1);
  const auto mixed = [](V16 rg, V16 b1, V16 first, V16 then) HWY_ATTR {
    return hn::ShiftRight<10>(hn::Add(pair_dot(rg, first), pair_dot(b1, then)));
  };
  each_register(rgb, pixels, [&](V8& r, V8& g, V8& b) HWY_ATTR {
    const V8 rg[2] = {hn::InterleaveLower(d, r, g), hn::InterleaveUpper(d, r, g)};
    const V8 b1[2] = {hn::InterleaveLower(d, b, ones), hn::InterleaveUpper(d, b, ones)};
    V16 half0[2], half1[2], half2[2];
    for (int k = 0; k < 2; ++k) {
      const V16 low = lower_bytes(rg[k]), high = upper_bytes(rg[k]);
      const V16 low_b = lower_bytes(b1[k]), high_b = upper_bytes(b1[k]);
      half0[k] = packed(mixed(low, low_b, first0, then0), mixed(high, high_b, first0, then0));
      half1[k] = packed(mixed(low, low_b, first1, then0), mixed(high, high_b, first1, then0));
      half2[k] = packed(mixed(low, low_b, first2, then2), mixed(high, high_b, first2, then2));
    }
    r = packed(half0[0], half0[1]), g = packed(half1[0], half1[1]), b = packed(half2[0], half2[1]);
  });
}

#endif

// Saturation beyond, as cv2.addWeighted of the image and its gray: a product and a sum rounded once to float, twice.
// In double both are exact before they are rounded. OpenCV's gray has weights of 15 bits. Only its last few bytes of an
// image may be a level off, as it does not fuse what is less than a register.
void add_weighted(uint8_t* rgb, size_t pixels, double factor) {
  constexpr float kCut = 1.0f / (1 << 14) - 0.5f;  // see kCut of byte_tables.cpp
  constexpr float kWhole = 12582912;  // 1.5 * 2^23: added to less than 2^22, it leaves whole numbers, ties to even
  const float own = float(factor), other = float(1 - factor);
  const auto product_sum = [](float a, float b, float c) HWY_ATTR {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
    return __builtin_fmaf(a, b, c);  // the same in one instruction
#else
    return float(double(a) * double(b) + double(c));
#endif
  };
  constexpr size_t kAtOnce = 256;  // in planes, so that the compiler can vectorize
  HWY_ALIGN uint8_t planes[3][kAtOnce];
  HWY_ALIGN float gray[kAtOnce];
  for (size_t i = 0; i < pixels; i += kAtOnce) {
    const size_t n = std::min(kAtOnce, pixels - i);
    split(rgb + 3 * i, n, planes[0], planes[1], planes[2]);
    for (size_t k = 0; k < n; ++k) {
      const int level = (9798 * planes[0][k] + 19235 * planes[1][k] + 3735 * planes[2][k] + 16384) >> 15;
      gray[k] = product_sum(float(level), other, kCut);
    }
    for (uint8_t* plane : planes)
      for (size_t k = 0; k < n; ++k) {
        const float level = (product_sum(float(plane[k]), own, gray[k]) + kWhole) - kWhole;
        plane[k] = uint8_t(std::min(std::max(int(level), 0), 255));
      }
    merge(planes[0], planes[1], planes[2], n, rgb + 3 * i);
  }
}

// In an even sixth of the circle the least channel follows the middle one, which follows the greatest, cyclically.
// There the middle one rises by share * (greatest - least). Once it is the greatest, the former greatest falls by what
// is left. Odd sixths are even ones of the negative.
template <class Shares>
HWY_INLINE void turn(V8& first, V8& second, V8& third, const Shares& shares) {
  const U8 d;
  const auto not_less = [&](V8 a, V8 b) HWY_ATTR { return hn::VecFromMask(d, hn::Eq(hn::Max(a, b), a)); };
  const V8 over0 = not_less(third, first), over1 = not_less(first, second), over2 = not_less(second, third);
  const V8 odd = hn::Xor(over0, hn::Xor(over1, over2));
  first = hn::Xor(first, odd), second = hn::Xor(second, odd), third = hn::Xor(third, odd);
  const V8 greater = hn::Max(first, second), less = hn::Min(first, second);
  const V8 greatest = hn::Max(greater, third), least = hn::Min(less, third);
  const V8 middle = hn::Max(less, hn::Min(greater, third));
  V8 pace[1] = {hn::Sub(greatest, least)};
  shares.apply(pace);
  const V8 rise = hn::Min(hn::Sub(greatest, middle), pace[0]);
  const V8 fall = hn::Sub(pace[0], rise);
  // where a channel is not the middle one
  const V8 other0 = hn::Xor(over0, over1), other1 = hn::Xor(over1, over2), other2 = hn::Xor(over2, over0);
  const auto turned = [&](V8 own, V8 other, V8 next_other) HWY_ATTR {
    return hn::Xor(hn::Sub(hn::Add(own, hn::AndNot(other, rise)), hn::AndNot(next_other, fall)), odd);
  };
  first = turned(first, other0, other1);
  second = turned(second, other1, other2);
  third = turned(third, other2, other0);
}

template <class Shares>
void turn_all(uint8_t* rgb, size_t pixels, const Turn& how, const Shares& shares) {
  const auto turn_as = [&](auto backwards, auto thirds) HWY_ATTR {
    // channel c of the result: what is at order[(c - thirds) % 3] after the turn
    constexpr int order[3] = {0, backwards ? 2 : 1, backwards ? 1 : 2};
    each_register(rgb, pixels, [&](V8& r, V8& g, V8& b) HWY_ATTR {
      V8 v[3] = {r, backwards ? b : g, backwards ? g : b};
      turn(v[0], v[1], v[2], shares);
      r = v[order[(3 - thirds) % 3]], g = v[order[(4 - thirds) % 3]], b = v[order[(5 - thirds) % 3]];
    });
  };
  using Yes = std::true_type;
  using No = std::false_type;
  const std::integral_constant<int, 0> zero;
  const std::integral_constant<int, 1> one;
  const std::integral_constant<int, 2> two;
  if (how.thirds == 0) how.backwards ? turn_as(Yes(), zero) : turn_as(No(), zero);
  if (how.thirds == 1) how.backwards ? turn_as(Yes(), one) : turn_as(No(), one);
  if (how.thirds == 2) how.backwards ? turn_as(Yes(), two) : turn_as(No(), two);
}

struct NoShares {
  HWY_INLINE void apply(V8* v) const { v[0] = hn::Zero(U8()); }
};

void turn_hue(uint8_t* rgb, size_t pixels, const Turn& how) {
  if (!how.shares) return turn_all(rgb, pixels, how, NoShares());
#if HWY_TARGET != HWY_SCALAR
  LineForm line;
  if (has_form(how.shares, line)) return turn_all(rgb, pixels, how, LineLookup(line));
#endif
  turn_all(rgb, pixels, how, EntryLookup(how.shares));
}

void pick(uint8_t* rgb, size_t pixels, const int* from, const uint8_t* fill) {
  const U8 tag;
  const size_t lanes = hn::Lanes(tag);
  size_t i = 0;
  for (; i + lanes <= pixels; i += lanes) {
    V8 red, green, blue;
    hn::LoadInterleaved3(tag, rgb + 3 * i, red, green, blue);
    const auto shown = [&](int c) HWY_ATTR {
      return from[c] == 0 ? red : from[c] == 1 ? green : from[c] == 2 ? blue : hn::Set(tag, fill[c]);
    };
    hn::StoreInterleaved3(shown(0), shown(1), shown(2), tag, rgb + 3 * i);
  }
  for (; i < pixels; ++i) {
    const uint8_t pixel[3] = {rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]};
    for (size_t c = 0; c < 3; ++c) rgb[3 * i + c] = from[c] < 0 ? fill[c] : pixel[from[c]];
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {

HWY_EXPORT(mix_channels);
HWY_EXPORT(add_weighted);
HWY_EXPORT(turn_hue);
HWY_EXPORT(pick);

void grayscale(Image& image) {
  if (image.channels == 3) gray(image.at, image.pixels());
}

void pick_channels(Image& image, const int* from, const uint8_t* fill) {
  if (image.channels == 3) HWY_DYNAMIC_DISPATCH(pick)(image.at, image.pixels(), from, fill);
}

void saturation(Image& image, double factor) {
  if (image.channels == 1) return;
  if (factor > 2) return HWY_DYNAMIC_DISPATCH(add_weighted)(image.at, image.pixels(), factor);
  const double unit = (1 - factor) / 64;
  const auto whole = [](double x) { return int(std::nearbyint(x)); };
  const int red = whole(19595 * unit), green = whole(38470 * unit), blue = whole(7471 * unit);
  HWY_DYNAMIC_DISPATCH(mix_channels)(image.at, image.pixels(), {red, green, blue, 1024 - red - green - blue});
}

void hue(Image& image, double shift) {
  if (image.channels == 1) return;
  const double sixths = 6 * shift;
  const int thirds = int(std::nearbyint(sixths / 2));
  const double share = sixths - 2 * thirds;  // in [-1, 1]
  const float size = float(std::abs(share));
  uint8_t shares[256];
  for (int v = 0; v < 256; ++v) shares[v] = uint8_t(std::nearbyint(float(v) * size));
  const Turn turn = {share < 0, (thirds % 3 + 3) % 3, shares[255] ? shares : nullptr};
  HWY_DYNAMIC_DISPATCH(turn_hue)(image.at, image.pixels(), turn);
}

}  // namespace fastfeed
#endif
