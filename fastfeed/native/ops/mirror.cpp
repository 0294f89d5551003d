#include "ops/mirror.h"

#include <array>
#include <cstring>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/mirror.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <int kChannels>
HWY_INLINE void mirror_pixels(const uint8_t* from, uint8_t* to, int width) {
  for (int x = 0; x < width; ++x)
    for (int c = 0; c < kChannels; ++c) to[x * kChannels + c] = from[(width - 1 - x) * kChannels + c];
}

template <int kChannels>
HWY_INLINE void exchange_pixels(uint8_t* left, uint8_t* right, int count) {
  for (int x = 0; x < count; ++x)
    for (int c = 0; c < kChannels; ++c) std::swap(left[x * kChannels + c], right[(-1 - x) * kChannels + c]);
}

// Where each byte of a vector comes from as its whole pixels are mirrored: those that it begins with, which then end it,
// or those that it ends with, which then begin it. Of the bytes that are left over, 0x80.
template <int kBytes, int kChannels, bool kEarly>
constexpr std::array<uint8_t, kBytes> turned() {
  constexpr int kPixels = kBytes / kChannels, kLeft = kBytes - kPixels * kChannels;
  std::array<uint8_t, kBytes> from{};
  for (int i = 0; i < kBytes; ++i) {
    const int k = kEarly ? i - kLeft : i, pixel = kPixels - 1 - k / kChannels;
    const bool is_whole = k >= 0 && k < kPixels * kChannels;
    from[i] = is_whole ? uint8_t(pixel * kChannels + k % kChannels + (kEarly ? 0 : kLeft)) : 0x80;
  }
  return from;
}

template <int kBytes, int kChannels, bool kEarly>
constexpr std::array<uint8_t, kBytes> kTurned = turned<kBytes, kChannels, kEarly>();

// For each kind of vector: a row mirrored into another, and `count` pixels from `left` on exchanged with those that end
// at `right`, mirrored.
#if HWY_TARGET == HWY_AVX3_DL

const hn::ScalableTag<uint8_t> d8;
using V8 = hn::Vec<decltype(d8)>;

// As many whole pixels as 64 bytes hold, by one permutation.
template <int kChannels>
struct Mirror {
  static constexpr int kPixels = 64 / kChannels;
  static constexpr size_t kSpan = size_t(kPixels) * kChannels;
  V8 early, late;  // of pixels that begin with the vector; of pixels that end with it

  HWY_INLINE Mirror()
      : early(hn::LoadU(d8, kTurned<64, kChannels, true>.data())),
        late(hn::LoadU(d8, kTurned<64, kChannels, false>.data())) {}

  HWY_INLINE void row(const uint8_t* from, uint8_t* to, int width) const {
    const uint8_t* end = from + width * kChannels;
    for (; width > kPixels; width -= kPixels, end -= kSpan, to += kSpan)
      hn::StoreU(permuted(hn::LoadU(d8, end - 64), late), d8, to);  // the next one corrects its last byte
    hn::BlendedStore(permuted(hn::MaskedLoad(last(width), d8, end - 64), late), first(width), d8, to);
  }

  HWY_INLINE void exchange(uint8_t* left, uint8_t* right, int count) const {
    auto at_left = first(count < kPixels ? count : kPixels), at_right = last(count < kPixels ? count : kPixels);
    V8 a = hn::MaskedLoad(at_left, d8, left), b = hn::MaskedLoad(at_right, d8, right - 64);
    for (; count > kPixels; left += kSpan, right -= kSpan) {
      count -= kPixels;
      if (count < kPixels) at_left = first(count), at_right = last(count);
      // before the stores, which take a byte of them; besides, a load that touches what was stored just now has to wait
      const V8 next_a = hn::MaskedLoad(at_left, d8, left + kSpan);
      const V8 next_b = hn::MaskedLoad(at_right, d8, right - kSpan - 64);
      hn::StoreU(permuted(b, late), d8, left);
      hn::StoreU(permuted(a, early), d8, right - 64);
      a = next_a, b = next_b;
    }
    hn::BlendedStore(permuted(b, late), at_left, d8, left);
    hn::BlendedStore(permuted(a, early), at_right, d8, right - 64);
  }

 private:
  static HWY_INLINE V8 permuted(V8 pixels, V8 by) { return V8{_mm512_permutexvar_epi8(by.raw, pixels.raw)}; }
  // The bytes of this many pixels at the beginning or at the end of a vector.
  static HWY_INLINE auto first(int pixels) { return hn::FirstN(d8, size_t(pixels) * kChannels); }
  static HWY_INLINE auto last(int pixels) { return hn::Not(hn::FirstN(d8, 64 - size_t(pixels) * kChannels)); }
};

#elif HWY_TARGET != HWY_SCALAR

const hn::Full128<uint8_t> d8;
using V8 = hn::Vec<decltype(d8)>;

// As many whole pixels as 16 bytes hold, with a byte of a neighbor where three channels leave one.
template <int kChannels>
struct Mirror {
  static constexpr int kPixels = 16 / kChannels;
  static constexpr size_t kSpan = size_t(kPixels) * kChannels;
  V8 early, late;  // of pixels that begin with the vector; of pixels that end with it. Zero where there are none

  HWY_INLINE Mirror()
      : early(hn::LoadU(d8, kTurned<16, kChannels, true>.data())),
        late(hn::LoadU(d8, kTurned<16, kChannels, false>.data())) {}

  HWY_INLINE void row(const uint8_t* from, uint8_t* to, int width) const {
    if (width <= kPixels) return mirror_pixels<kChannels>(from, to, width);
    const uint8_t* end = from + width * kChannels;
    constexpr int kTurns = 4;
    for (; width > kTurns * kPixels; width -= kTurns * kPixels, end -= kTurns * kSpan, to += kTurns * kSpan)
      for (int i = 0; i < kTurns; ++i) put(end - i * kSpan, to + i * kSpan);
    for (; width > kPixels; width -= kPixels, end -= kSpan, to += kSpan) put(end, to);
    to += width * kChannels;  // the end of the row
    hn::StoreU(hn::TableLookupBytesOr0(hn::LoadU(d8, from), early), d8, to - 16);
    if (kChannels == 3) to[-16] = from[17];
  }

  HWY_INLINE void exchange(uint8_t* left, uint8_t* right, int count) const {
    constexpr uint8_t kEnd = kChannels == 3 ? 0xFF : 0;
    alignas(16) static constexpr uint8_t kEnds[2][16] = {{kEnd}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, kEnd}};
    constexpr int kLeast = kChannels == 3 ? kPixels + 1 : kPixels;  // what fills a vector
    if (count >= kLeast) {
      V8 a = hn::LoadU(d8, left), b = hn::LoadU(d8, right - 16);
      constexpr int kTurns = 4;
      for (; count >= kTurns * kPixels + kLeast; count -= kTurns * kPixels) {
        for (int i = 0; i < kTurns; ++i) exchange_first(left + i * kSpan, right - i * kSpan, a, b);
        left += kTurns * kSpan, right -= kTurns * kSpan;
      }
      for (; count >= kPixels + kLeast; count -= kPixels, left += kSpan, right -= kSpan)
        exchange_first(left, right, a, b);
      const V8 first = hn::Load(d8, kEnds[0]), last = hn::Load(d8, kEnds[1]);  // of a neighbor, which stays
      hn::StoreU(hn::Or(hn::TableLookupBytesOr0(b, late), hn::And(a, last)), d8, left);
      hn::StoreU(hn::Or(hn::TableLookupBytesOr0(a, early), hn::And(b, first)), d8, right - 16);
      count -= kPixels, left += kSpan, right -= kSpan;
    }
    exchange_pixels<kChannels>(left, right, count);
  }

 private:
  // a and b are the vectors at both ends, and then those that follow. These are loaded before the others are stored,
  // which takes a byte of them; besides, a load that touches what was stored just now has to wait for it.
  HWY_INLINE void exchange_first(uint8_t* left, uint8_t* right, V8& a, V8& b) const {
    const V8 next_a = hn::LoadU(d8, left + kSpan), next_b = hn::LoadU(d8, right - kSpan - 16);
    hn::StoreU(hn::TableLookupBytesOr0(b, late), d8, left);
    hn::StoreU(hn::TableLookupBytesOr0(a, early), d8, right - 16);
    a = next_a, b = next_b;
  }

  // The pixels before `end`; the next ones correct the last byte.
  HWY_INLINE void put(const uint8_t* end, uint8_t* to) const {
    hn::StoreU(hn::TableLookupBytesOr0(hn::LoadU(d8, end - 16), late), d8, to);
  }
};

#else

template <int kChannels>
struct Mirror {
  void row(const uint8_t* from, uint8_t* to, int width) const { mirror_pixels<kChannels>(from, to, width); }
  void exchange(uint8_t* left, uint8_t* right, int count) const { exchange_pixels<kChannels>(left, right, count); }
};

#endif

// Without a call per row: short rows are the rule where images are small. The last vector overlaps the one before.
template <class D>
HWY_INLINE void copy_bytes(D d, const uint8_t* from, uint8_t* to, size_t bytes) {
  const size_t n = hn::Lanes(d);
  for (size_t i = 0; i + n < bytes; i += n) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  hn::StoreU(hn::LoadU(d, from + bytes - n), d, to + bytes - n);
}

void copy_plain(const uint8_t* from, ptrdiff_t from_row, uint8_t* to, ptrdiff_t to_row, int height, size_t bytes) {
  if (from_row == ptrdiff_t(bytes) && to_row == from_row) {
    std::memcpy(to, from, size_t(height) * bytes);
    return;
  }
  const hn::ScalableTag<uint8_t> d;
  const hn::CappedTag<uint8_t, 16> small;
  for (int y = 0; y < height; ++y, from += from_row, to += to_row) {
    if (bytes >= hn::Lanes(d)) copy_bytes(d, from, to, bytes);
    else if (bytes >= hn::Lanes(small)) copy_bytes(small, from, to, bytes);
    else for (size_t i = 0; i < bytes; ++i) to[i] = from[i];
  }
}

template <int kChannels>
void copy_mirrored(const uint8_t* from, ptrdiff_t from_row, uint8_t* to, ptrdiff_t to_row, int height, int width) {
  const Mirror<kChannels> mirror;
  for (int y = 0; y < height; ++y, from += from_row, to += to_row) mirror.row(from, to, width);
}

void copy_rows(const uint8_t* from, ptrdiff_t from_row, uint8_t* to, ptrdiff_t to_row, int height, int width,
               int channels, bool mirrored) {
  if (!mirrored) copy_plain(from, from_row, to, to_row, height, size_t(width) * size_t(channels));
  else if (channels == 3) copy_mirrored<3>(from, from_row, to, to_row, height, width);
  else copy_mirrored<1>(from, from_row, to, to_row, height, width);
}

void exchange_rows(uint8_t* a, uint8_t* b, size_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  const size_t n = hn::Lanes(d);
  size_t i = 0;
  for (; i + n <= bytes; i += n) {
    const auto first = hn::LoadU(d, a + i), second = hn::LoadU(d, b + i);
    hn::StoreU(second, d, a + i);
    hn::StoreU(first, d, b + i);
  }
  for (; i < bytes; ++i) std::swap(a[i], b[i]);
}

template <int kChannels>
void mirror_across(const Image& image, bool down) {
  const Mirror<kChannels> mirror;
  const size_t row = image.row();
  int y = 0;
  if (down)
    for (; y < image.height / 2; ++y)
      mirror.exchange(image.at + size_t(y) * row, image.at + size_t(image.height - y) * row, image.width);
  for (const int end = down ? image.height - y : image.height; y < end; ++y)
    mirror.exchange(image.at + size_t(y) * row, image.at + size_t(y + 1) * row, image.width / 2);
}

void mirror(const Image& image, const bool* flip) {
  const size_t row = image.row();
  if (flip[1]) return image.channels == 3 ? mirror_across<3>(image, flip[0]) : mirror_across<1>(image, flip[0]);
  if (!flip[0]) return;
  for (int y = 0; y < image.height / 2; ++y)
    exchange_rows(image.at + size_t(y) * row, image.at + size_t(image.height - 1 - y) * row, row);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {

HWY_EXPORT(copy_rows);
HWY_EXPORT(mirror);

void copy_rows(const uint8_t* from, ptrdiff_t from_row, uint8_t* to, ptrdiff_t to_row, int height, int width,
               int channels, bool mirrored) {
  HWY_DYNAMIC_DISPATCH(copy_rows)(from, from_row, to, to_row, height, width, channels, mirrored);
}

void mirror(const Image& image, const bool* flip) { HWY_DYNAMIC_DISPATCH(mirror)(image, flip); }

}  // namespace fastfeed
#endif
