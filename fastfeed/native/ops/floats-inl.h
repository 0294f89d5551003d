// Bytes as vectors of floats and back, and a multiply-add that is rounded once. Included once per SIMD target.
#if defined(FASTFEED_OPS_FLOATS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FASTFEED_OPS_FLOATS_INL_H
#undef FASTFEED_OPS_FLOATS_INL_H
#else
#define FASTFEED_OPS_FLOATS_INL_H
#endif

#include <hwy/highway.h>

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using FloatV = hn::Vec<Floats>;

// Four vectors of floats, which hold as many bytes as one vector. Which byte is where is up to the target.
struct Quad {
  FloatV v[4];
};
HWY_INLINE size_t quad_bytes() { return 4 * hn::Lanes(Floats()); }

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE Quad floats_of_bytes(const uint8_t* at) {
  const Floats f;
  return {{hn::Set(f, at[0]), hn::Set(f, at[1]), hn::Set(f, at[2]), hn::Set(f, at[3])}};
}
// Rounded to the nearest, ties to even, and saturated. Of floats_of_bytes and -32768 to 32767.
HWY_INLINE void store_bytes(const Quad& quad, uint8_t* at) {
  for (int k = 0; k < 4; ++k) {
    const long value = std::lrint(hn::GetLane(quad.v[k]));  // Highway's NearestInt for one lane has other ties
    at[k] = uint8_t(value < 0 ? 0 : value > 255 ? 255 : value);
  }
}

#else

using Bytes = hn::ScalableTag<uint8_t>;
using Words = hn::ScalableTag<int16_t>;
using UnsignedWords = hn::ScalableTag<uint16_t>;
using Ints = hn::ScalableTag<int32_t>;

// Byte 4 i + k as float i of vector k, for k = 0, 2, 1, 3.
HWY_INLINE Quad floats_of_bytes(const uint8_t* at) {
  const UnsignedWords u;
  const hn::RebindToUnsigned<Ints> i;
  const Floats f;
  const auto both = hn::BitCast(u, hn::LoadU(Bytes(), at));
  const auto even = hn::BitCast(i, hn::And(both, hn::Set(u, 255))), odd = hn::BitCast(i, hn::ShiftRight<8>(both));
  const auto low = hn::Set(i, 65535);
  const auto to_float = [f](hn::Vec<decltype(i)> v) { return hn::ConvertTo(f, hn::BitCast(Ints(), v)); };
  return {{to_float(hn::And(even, low)), to_float(hn::ShiftRight<16>(even)), to_float(hn::And(odd, low)),
           to_float(hn::ShiftRight<16>(odd))}};
}

// Words 2 i and 2 i + 1 from floats i, rounded to the nearest, ties to even, of -32768 to 32767: added to 1.5 * 2**23
// they are the last bits of the sum. Highway's NearestInt costs five more instructions, for numbers out of range.
HWY_INLINE hn::Vec<Words> rounded(FloatV even, FloatV odd) {
  const Words w;
  const FloatV magic = hn::Set(Floats(), 12582912.0f);
  const auto low = hn::BitCast(Ints(), hn::Add(even, magic)), high = hn::BitCast(Ints(), hn::Add(odd, magic));
  return hn::OddEven(hn::BitCast(w, hn::ShiftLeft<16>(high)), hn::BitCast(w, low));
}

// Bytes from words of 0 to 255.
HWY_INLINE hn::Vec<Bytes> bytes_of_words(hn::Vec<Words> even, hn::Vec<Words> odd) {
  return hn::BitCast(Bytes(), hn::Or(even, hn::ShiftLeft<8>(odd)));
}

HWY_INLINE hn::Vec<Words> clamped(hn::Vec<Words> v) {
  const Words w;
  return hn::Min(hn::Max(v, hn::Zero(w)), hn::Set(w, 255));
}

// Rounded to the nearest, ties to even, and saturated. Of floats_of_bytes and -32768 to 32767.
HWY_INLINE void store_bytes(const Quad& quad, uint8_t* at) {
  const auto even = clamped(rounded(quad.v[0], quad.v[1])), odd = clamped(rounded(quad.v[2], quad.v[3]));
  hn::StoreU(bytes_of_words(even, odd), Bytes(), at);
}
#endif

// a * b + c, rounded once: with or without an instruction for it, so the bytes are the same on every processor.
#if HWY_NATIVE_FMA
HWY_INLINE FloatV fused(FloatV a, FloatV b, FloatV c) { return hn::MulAdd(a, b, c); }
#else
// The product is exact in a double. Where the sum is not, its last bit is made odd, which the second rounding cannot
// mistake for a tie.
template <class F, class V = hn::Vec<F>>
HWY_INLINE V fused_by_doubles(F f, V a, V b, V c) {
  const hn::Rebind<double, F> d;
  const hn::RebindToSigned<decltype(d)> i;
  const auto product = hn::Mul(hn::PromoteTo(d, a), hn::PromoteTo(d, b)), addend = hn::PromoteTo(d, c);
  const auto sum = hn::Add(product, addend), part = hn::Sub(sum, product);
  const auto error = hn::Add(hn::Sub(product, hn::Sub(sum, part)), hn::Sub(addend, part));
  const auto bits = hn::BitCast(i, sum), one = hn::Set(i, 1);
  const auto inexact = hn::BitCast(i, hn::VecFromMask(d, hn::Gt(hn::Abs(error), hn::Zero(d))));
  const auto even = hn::Sub(hn::And(bits, one), one);  // all bits or none
  const auto toward = hn::Or(hn::ShiftRight<63>(hn::BitCast(i, hn::Xor(error, sum))), one);  // 1 or -1
  return hn::DemoteTo(f, hn::BitCast(d, hn::Add(bits, hn::And(toward, hn::And(inexact, even)))));
}

HWY_INLINE FloatV fused(FloatV a, FloatV b, FloatV c) {
#if HWY_TARGET == HWY_SCALAR
  return fused_by_doubles(Floats(), a, b, c);
#else
  const hn::Half<Floats> h;
  const auto low = fused_by_doubles(h, hn::LowerHalf(h, a), hn::LowerHalf(h, b), hn::LowerHalf(h, c));
  const auto high = fused_by_doubles(h, hn::UpperHalf(h, a), hn::UpperHalf(h, b), hn::UpperHalf(h, c));
  return hn::Combine(Floats(), high, low);
#endif
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();
#endif
