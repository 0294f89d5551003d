// Pixels of three channels, a register of each channel at a time. Included once per target, as looks-inl.h.

#if defined(FASTFEED_PIXELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FASTFEED_PIXELS_INL_H_
#undef FASTFEED_PIXELS_INL_H_
#else
#define FASTFEED_PIXELS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Every pixel replaced by what `change(red, green, blue)` makes of them. The last ones are done together with what is
// not there.
template <class Change>
HWY_INLINE void each_register(uint8_t* rgb, size_t pixels, const Change& change) {
  const hn::ScalableTag<uint8_t> d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<hn::ScalableTag<uint8_t>> r, g, b;
  size_t i = 0;
  for (; i + lanes <= pixels; i += lanes) {
    hn::LoadInterleaved3(d, rgb + 3 * i, r, g, b);
    change(r, g, b);
    hn::StoreInterleaved3(r, g, b, d, rgb + 3 * i);
  }
  if (i == pixels) return;
  HWY_ALIGN uint8_t rest[3 * HWY_MAX_BYTES] = {};
  std::memcpy(rest, rgb + 3 * i, 3 * (pixels - i));
  hn::LoadInterleaved3(d, rest, r, g, b);
  change(r, g, b);
  hn::StoreInterleaved3(r, g, b, d, rest);
  std::memcpy(rgb + 3 * i, rest, 3 * (pixels - i));
}

// Planes, aligned to registers.
HWY_INLINE void split(const uint8_t* rgb, size_t pixels, uint8_t* r, uint8_t* g, uint8_t* b) {
  const hn::ScalableTag<uint8_t> d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<hn::ScalableTag<uint8_t>> v[3];
  size_t i = 0;
  for (; i + lanes <= pixels; i += lanes) {
    hn::LoadInterleaved3(d, rgb + 3 * i, v[0], v[1], v[2]);
    hn::Store(v[0], d, r + i), hn::Store(v[1], d, g + i), hn::Store(v[2], d, b + i);
  }
  for (; i < pixels; ++i) r[i] = rgb[3 * i], g[i] = rgb[3 * i + 1], b[i] = rgb[3 * i + 2];
}

HWY_INLINE void merge(const uint8_t* r, const uint8_t* g, const uint8_t* b, size_t pixels, uint8_t* rgb) {
  const hn::ScalableTag<uint8_t> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= pixels; i += lanes)
    hn::StoreInterleaved3(hn::Load(d, r + i), hn::Load(d, g + i), hn::Load(d, b + i), d, rgb + 3 * i);
  for (; i < pixels; ++i) rgb[3 * i] = r[i], rgb[3 * i + 1] = g[i], rgb[3 * i + 2] = b[i];
}

#if HWY_TARGET != HWY_SCALAR
using I16 = hn::ScalableTag<int16_t>;
using I32 = hn::ScalableTag<int32_t>;
using V16 = hn::Vec<I16>;
using V32 = hn::Vec<I32>;

// Bytes as 16 bits: of each 16 bytes the lower eight, and the upper eight.
template <class V>
HWY_INLINE V16 lower_bytes(V v) {
  const hn::ScalableTag<uint8_t> d;
  return hn::BitCast(I16(), hn::InterleaveLower(d, v, hn::Zero(d)));
}
template <class V>
HWY_INLINE V16 upper_bytes(V v) {
  const hn::ScalableTag<uint8_t> d;
  return hn::BitCast(I16(), hn::InterleaveUpper(d, v, hn::Zero(d)));
}

// Two numbers of 16 bits, as often as they fit in.
HWY_INLINE V16 pair_of(int first, int then) {
  return hn::BitCast(I16(), hn::Set(I32(), int32_t(uint32_t(then) << 16 | (uint32_t(first) & 0xFFFF))));
}

// The sums of the products of two neighbors each.
HWY_INLINE V32 pair_dot(V16 a, V16 b) {
  const I32 d;
  auto then = hn::Zero(d);
  const auto first = hn::ReorderWidenMulAccumulate(d, a, b, hn::Zero(d), then);
#if HWY_ARCH_X86
  return first;
#else
  return hn::Add(hn::ConcatEven(d, then, first), hn::ConcatOdd(d, then, first));
#endif
}

// Clipped to less bits. What was taken apart in two halves of every 16 bytes comes together as it was.
HWY_INLINE V16 packed(V32 low, V32 high) { return hn::ReorderDemote2To(I16(), low, high); }

HWY_INLINE hn::Vec<hn::ScalableTag<uint8_t>> packed(V16 low, V16 high) {
  using V = hn::Vec<hn::ScalableTag<uint8_t>>;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  return V{_mm512_packus_epi16(low.raw, high.raw)};
#elif HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  return V{_mm256_packus_epi16(low.raw, high.raw)};
#elif HWY_ARCH_X86
  return V{_mm_packus_epi16(low.raw, high.raw)};
#else
  const hn::ScalableTag<uint8_t> d;
  const hn::Half<hn::ScalableTag<uint8_t>> half;
  return hn::Combine(d, hn::DemoteTo(half, high), hn::DemoteTo(half, low));
#endif
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#endif
