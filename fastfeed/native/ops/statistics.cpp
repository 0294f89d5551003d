#include "ops/statistics.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/statistics.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kAtOnce = 3;  // registers: whatever their size, a place in three of them is always of the same channel
constexpr size_t kPlaces = kAtOnce * HWY_MAX_BYTES;

#if HWY_TARGET != HWY_SCALAR
using U8 = hn::ScalableTag<uint8_t>;
using U16 = hn::Repartition<uint16_t, U8>;

// The sums of blocks of three registers, by place within a block. Bytes are added as 16 bits of two neighbors, modulo
// 2^16, and the upper ones alone: what the upper ones sum up to is known, and so what the lower ones do.
size_t sum_blocks(const uint8_t* in, size_t bytes, uint64_t* places) {
  const U8 d;
  const U16 d16;
  constexpr size_t kMost = 257;  // times 255 fits into 16 bits
  const size_t lanes = hn::Lanes(d), block = kAtOnce * lanes;
  HWY_ALIGN uint16_t both[HWY_MAX_BYTES / 2], upper[HWY_MAX_BYTES / 2];
  size_t i = 0;
  while (i + block <= bytes) {
    const size_t end = i + std::min(kMost, (bytes - i) / block) * block;
    auto both0 = hn::Zero(d16), both1 = both0, both2 = both0, upper0 = both0, upper1 = both0, upper2 = both0;
    for (; i < end; i += block) {
      const auto a = hn::BitCast(d16, hn::LoadU(d, in + i)), b = hn::BitCast(d16, hn::LoadU(d, in + i + lanes));
      const auto c = hn::BitCast(d16, hn::LoadU(d, in + i + 2 * lanes));
      both0 = hn::Add(both0, a), upper0 = hn::Add(upper0, hn::ShiftRight<8>(a));
      both1 = hn::Add(both1, b), upper1 = hn::Add(upper1, hn::ShiftRight<8>(b));
      both2 = hn::Add(both2, c), upper2 = hn::Add(upper2, hn::ShiftRight<8>(c));
    }
    const auto add = [&](size_t first, auto all, auto high) HWY_ATTR {
      hn::Store(all, d16, both);
      hn::Store(high, d16, upper);
      for (size_t k = 0; k < lanes / 2; ++k) {
        places[first + 2 * k] += uint16_t(both[k] - (upper[k] << 8));
        places[first + 2 * k + 1] += upper[k];
      }
    };
    add(0, both0, upper0), add(lanes, both1, upper1), add(2 * lanes, both2, upper2);
  }
  return i;
}

// Adds up squares as 32 bits, as many as fit. Returns how many bytes there were.
size_t square_blocks(const uint8_t* in, size_t bytes, uint64_t& total) {
  const hn::Repartition<int16_t, U8> d16;
  const hn::Repartition<int32_t, U8> d32;
  const U8 d;
  constexpr size_t kMost = 8192;  // times 4 squares fits into 31 bits
  const size_t lanes = hn::Lanes(d);
  const auto low = hn::Set(d16, 255);
  HWY_ALIGN int32_t sums[HWY_MAX_BYTES / 4];
  size_t i = 0;
  while (i + lanes <= bytes) {
    const size_t end = i + std::min(kMost, (bytes - i) / lanes) * lanes;
    auto first = hn::Zero(d32), second = first;
    for (; i < end; i += lanes) {
      const auto both = hn::LoadU(d, in + i);
      const auto even = hn::And(hn::BitCast(d16, both), low);
      const auto odd = hn::BitCast(d16, hn::ShiftRight<8>(hn::BitCast(U16(), both)));
      first = hn::ReorderWidenMulAccumulate(d32, even, even, first, second);
      first = hn::ReorderWidenMulAccumulate(d32, odd, odd, first, second);
    }
    hn::Store(first, d32, sums);
    for (size_t k = 0; k < lanes / 4; ++k) total += uint32_t(sums[k]);
    hn::Store(second, d32, sums);
    for (size_t k = 0; k < lanes / 4; ++k) total += uint32_t(sums[k]);
  }
  return i;
}

size_t extremes_of_blocks(const uint8_t* in, size_t bytes, uint8_t* least, uint8_t* greatest) {
  const U8 d;
  const size_t lanes = hn::Lanes(d), block = kAtOnce * lanes;
  if (bytes < block) return 0;
  auto least0 = hn::LoadU(d, in), least1 = hn::LoadU(d, in + lanes), least2 = hn::LoadU(d, in + 2 * lanes);
  auto greatest0 = least0, greatest1 = least1, greatest2 = least2;
  size_t i = block;
  for (; i + block <= bytes; i += block) {
    const auto a = hn::LoadU(d, in + i), b = hn::LoadU(d, in + i + lanes), c = hn::LoadU(d, in + i + 2 * lanes);
    least0 = hn::Min(least0, a), greatest0 = hn::Max(greatest0, a);
    least1 = hn::Min(least1, b), greatest1 = hn::Max(greatest1, b);
    least2 = hn::Min(least2, c), greatest2 = hn::Max(greatest2, c);
  }
  hn::StoreU(least0, d, least), hn::StoreU(least1, d, least + lanes), hn::StoreU(least2, d, least + 2 * lanes);
  hn::StoreU(greatest0, d, greatest), hn::StoreU(greatest1, d, greatest + lanes);
  hn::StoreU(greatest2, d, greatest + 2 * lanes);
  return i;
}

#else

size_t sum_blocks(const uint8_t*, size_t, uint64_t*) { return 0; }
size_t square_blocks(const uint8_t*, size_t, uint64_t&) { return 0; }
size_t extremes_of_blocks(const uint8_t*, size_t, uint8_t*, uint8_t*) { return 0; }
#endif

void sum_bytes(const uint8_t* in, size_t pixels, int channels, uint64_t* sums) {
  const size_t bytes = pixels * size_t(channels);
  uint64_t places[kPlaces] = {};
  size_t i = sum_blocks(in, bytes, places);
  for (size_t rest = 0; i < bytes; ++i, rest = rest + 1 < kPlaces ? rest + 1 : 0) places[rest] += in[i];
  std::fill(sums, sums + channels, 0);
  for (size_t k = 0; k < kPlaces; ++k) sums[channels == 1 ? 0 : k % 3] += places[k];
}

uint64_t square_bytes(const uint8_t* in, size_t bytes) {
  uint64_t total = 0;
  for (size_t i = square_blocks(in, bytes, total); i < bytes; ++i) total += uint64_t(in[i]) * in[i];
  return total;
}

void extremes_of_bytes(const uint8_t* in, size_t pixels, int channels, uint8_t* least, uint8_t* greatest) {
  const size_t bytes = pixels * size_t(channels);
  uint8_t low[kPlaces], high[kPlaces];
  std::fill(low, low + kPlaces, uint8_t(255));
  std::fill(high, high + kPlaces, uint8_t(0));
  size_t i = extremes_of_blocks(in, bytes, low, high);
  for (size_t rest = 0; i < bytes; ++i, rest = rest + 1 < kPlaces ? rest + 1 : 0) {
    low[rest] = std::min(low[rest], in[i]);
    high[rest] = std::max(high[rest], in[i]);
  }
  std::fill(least, least + channels, uint8_t(255));
  std::fill(greatest, greatest + channels, uint8_t(0));
  for (size_t k = 0; k < kPlaces; ++k) {
    const size_t c = channels == 1 ? 0 : k % 3;
    least[c] = std::min(least[c], low[k]);
    greatest[c] = std::max(greatest[c], high[k]);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {

HWY_EXPORT(sum_bytes);
HWY_EXPORT(extremes_of_bytes);
HWY_EXPORT(square_bytes);

void sum(const uint8_t* in, size_t pixels, int channels, uint64_t* sums) {
  HWY_DYNAMIC_DISPATCH(sum_bytes)(in, pixels, channels, sums);
}

uint64_t sum_of_squares(const uint8_t* in, size_t bytes) { return HWY_DYNAMIC_DISPATCH(square_bytes)(in, bytes); }

void extremes(const uint8_t* in, size_t pixels, int channels, uint8_t* least, uint8_t* greatest) {
  HWY_DYNAMIC_DISPATCH(extremes_of_bytes)(in, pixels, channels, least, greatest);
}

}  // namespace fastfeed
#endif
