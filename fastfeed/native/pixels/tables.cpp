#include "pixels/tables.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pixels/tables.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "pixels/lookups-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {

constexpr bool kVbmi = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL;

bool is_vbmi() { return kVbmi; }

void look_up_plain(const uint8_t* in, uint8_t* out, size_t bytes, const uint8_t (*tables)[256], int channels) {
  if (channels == 1) {
    for (size_t i = 0; i < bytes; ++i) out[i] = tables[0][in[i]];
    return;
  }
  for (size_t i = 0; i < bytes; i += size_t(channels))
    for (int c = 0; c < channels; ++c) out[i + size_t(c)] = tables[c][in[i + size_t(c)]];
}

#if HWY_TARGET != HWY_SCALAR

// Returns how many bytes it did: whole registers.
template <class Look>
size_t look_up_all(const uint8_t* in, uint8_t* out, size_t bytes, const Look& look) {
  const U8 d;
  const size_t lanes = hn::Lanes(d);
  V8 v[4];
  size_t i = 0;
  for (; i + 4 * lanes <= bytes; i += 4 * lanes) {
    for (size_t k = 0; k < 4; ++k) v[k] = hn::LoadU(d, in + i + k * lanes);
    for (size_t k = 0; k < 4; k += Look::kAtOnce) look.apply(v + k);
    for (size_t k = 0; k < 4; ++k) hn::StoreU(v[k], d, out + i + k * lanes);
  }
  return i;
}

// The same of pixels of three channels.
template <class Look>
size_t look_up_each(const uint8_t* in, uint8_t* out, size_t bytes, const Look (&looks)[3]) {
  constexpr size_t kAtOnce = Look::kAtOnce;
  const U8 d;
  const Deinterleaver deinterleaver;
  const size_t lanes = hn::Lanes(d);
  V8 v[3][kAtOnce];
  size_t i = 0;
  for (; i + 3 * kAtOnce * lanes <= bytes; i += 3 * kAtOnce * lanes) {
    const uint8_t* from = in + i;
    for (size_t k = 0; k < kAtOnce; ++k, from += 3 * lanes) {
      for (size_t c = 0; c < 3; ++c) v[c][k] = hn::LoadU(d, from + c * lanes);
      deinterleaver(v[0][k], v[1][k], v[2][k]);
    }
    for (size_t c = 0; c < 3; ++c) looks[c].apply(v[c]);
    uint8_t* to = out + i;
    for (size_t k = 0; k < kAtOnce; ++k, to += 3 * lanes) {
      deinterleaver.back(v[0][k], v[1][k], v[2][k]);
      for (size_t c = 0; c < 3; ++c) hn::StoreU(v[c][k], d, to + c * lanes);
    }
  }
  return i;
}

size_t look_up_in_one(const uint8_t* in, uint8_t* out, size_t bytes, const uint8_t* table) {
  BitForm bits;
  LineForm line;
  if (has_form(table, bits)) {
    if (in == out && bits.keep == 255 && !bits.flip && !bits.above) return bytes;  // AutoContrast, most of the time
    return bits.above ? look_up_all(in, out, bytes, BitLookup(bits)) : look_up_all(in, out, bytes, MaskLookup(bits));
  }
  if (!kVbmi && has_form(table, line)) return look_up_all(in, out, bytes, LineLookup(line));
  return look_up_all(in, out, bytes, TableLookup(table));
}

size_t look_up_in_three(const uint8_t* in, uint8_t* out, size_t bytes, const uint8_t (*tables)[256]) {
  LineForm lines[3];
  if (!kVbmi && has_form(tables[0], lines[0]) && has_form(tables[1], lines[1]) && has_form(tables[2], lines[2])) {
    const LineLookup looks[3] = {LineLookup(lines[0]), LineLookup(lines[1]), LineLookup(lines[2])};
    return look_up_each(in, out, bytes, looks);
  }
  const TableLookup looks[3] = {TableLookup(tables[0]), TableLookup(tables[1]), TableLookup(tables[2])};
  return look_up_each(in, out, bytes, looks);
}

void look_up_bytes(const uint8_t* in, uint8_t* out, size_t bytes, const uint8_t (*tables)[256], int channels) {
  constexpr size_t kMany = 4096;  // from here on a look at the table is worth it
  size_t done = 0;
  if (bytes >= kMany) {
    // the first two against the last two
    if (channels == 3 && !std::memcmp(tables[0], tables[1], 512)) channels = 1;
    done = channels == 1 ? look_up_in_one(in, out, bytes, tables[0]) : look_up_in_three(in, out, bytes, tables);
  }
  look_up_plain(in + done, out + done, bytes - done, tables, channels);
}

#else

void look_up_bytes(const uint8_t* in, uint8_t* out, size_t bytes, const uint8_t (*tables)[256], int channels) {
  look_up_plain(in, out, bytes, tables, channels);
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {
namespace {

// A load, a sum and a store of their own take fewer steps in the processor than an instruction that does all three, in
// which compilers would merge them.
inline void raise(uint32_t& counter) {
  uint32_t n = counter;
#if defined(__GNUC__)
  __asm__("" : "+r"(n));
#endif
  counter = n + 1;
}

// Neighbors are often equal, and a counter cannot be raised again before it is written: so several of each.
template <int kChannels>
void count_in_turn(const uint8_t* in, size_t pixels, uint32_t (*counts)[256]) {
  constexpr int kTurns = 4, kAtOnce = 8;
  uint32_t turns[kTurns][kChannels][256] = {};
  size_t i = 0;
  for (; i + kAtOnce <= pixels; i += kAtOnce)
#pragma GCC unroll 8
    for (int k = 0; k < kAtOnce; ++k)
      for (int c = 0; c < kChannels; ++c) raise(turns[k % kTurns][c][in[(i + size_t(k)) * kChannels + size_t(c)]]);
  for (; i < pixels; ++i)
    for (int c = 0; c < kChannels; ++c) ++turns[0][c][in[i * kChannels + size_t(c)]];
  for (int c = 0; c < kChannels; ++c)
    for (int v = 0; v < 256; ++v) {
      counts[c][v] = 0;
      for (int k = 0; k < kTurns; ++k) counts[c][v] += turns[k][c][v];
    }
}

}  // namespace

HWY_EXPORT(is_vbmi);
HWY_EXPORT(look_up_bytes);

bool has_vbmi() { return HWY_DYNAMIC_DISPATCH(is_vbmi)(); }

void look_up(const uint8_t* in, uint8_t* out, size_t bytes, const uint8_t (*tables)[256], int channels) {
  HWY_DYNAMIC_DISPATCH(look_up_bytes)(in, out, bytes, tables, channels);
}

void count(const uint8_t* in, size_t pixels, int channels, uint32_t (*counts)[256]) {
  switch (channels) {
    case 1: return count_in_turn<1>(in, pixels, counts);
    case 3: return count_in_turn<3>(in, pixels, counts);
  }
}

}  // namespace fastfeed
#endif
