#include "image/rgb_rows.h"

#include <cstring>

namespace fastfeed {
namespace {

// `in` points at the bytes that are shown.
template <size_t kColors, bool kAlpha, size_t kBytes>
void expand(const uint8_t* in, size_t n, const Matte& matte, uint8_t* out) {
  constexpr size_t step = (kColors + kAlpha) * kBytes;
  for (size_t i = 0; i < n; ++i, in += step)
    for (size_t c = 0; c < 3; ++c) {
      const uint8_t value = in[kColors == 3 ? c * kBytes : 0];
      out[3 * i + c] = kAlpha ? over(value, in[kColors * kBytes], matte[c]) : value;
    }
}

template <size_t kBytes>
void expand_any(const SampleLayout& layout, const uint8_t* in, size_t n, const Matte& matte, uint8_t* out) {
  if (layout.colors == 3) layout.alpha ? expand<3, true, kBytes>(in, n, matte, out) : expand<3, false, kBytes>(in, n, matte, out);
  else layout.alpha ? expand<1, true, kBytes>(in, n, matte, out) : expand<1, false, kBytes>(in, n, matte, out);
}

}  // namespace

void samples_to_rgb(const SampleLayout& layout, const uint8_t* in, size_t n, const Matte& matte, uint8_t* out) {
  if (layout.colors == 3 && !layout.alpha && layout.bytes == 1) std::memcpy(out, in, 3 * n);
  else if (layout.bytes == 1) expand_any<1>(layout, in, n, matte, out);
  else expand_any<2>(layout, in + layout.upper, n, matte, out);
}

}  // namespace fastfeed
