#include "wide.h"

namespace fastfeed {
namespace {

void look_up_plain(const uint8_t* in, uint8_t* out, size_t bytes, const uint8_t (*tables)[256], int channels) {
  if (channels == 1) {
    for (size_t i = 0; i < bytes; ++i) out[i] = tables[0][in[i]];
    return;
  }
  for (size_t i = 0; i < bytes; i += size_t(channels))
    for (int c = 0; c < channels; ++c) out[i + size_t(c)] = tables[c][in[i + size_t(c)]];
}

#ifdef FASTFEED_WIDE
inline uint64_t first(size_t count) { return count >= 64 ? ~uint64_t(0) : (uint64_t(1) << count) - 1; }

FASTFEED_WIDE void look_up_wide(const uint8_t* in, uint8_t* out, size_t bytes, const uint8_t* table) {
  const Table t = load(table);
  size_t i = 0;
  for (; i + 64 <= bytes; i += 64) _mm512_storeu_si512(out + i, look(t, _mm512_loadu_si512(in + i)));
  if (const __mmask64 rest = first(bytes - i))
    _mm512_mask_storeu_epi8(out + i, rest, look(t, _mm512_maskz_loadu_epi8(rest, in + i)));
}

// 64 bytes of three channels, the first of which is of channel `lead`.
FASTFEED_WIDE inline __m512i look(const Table (&t)[3], __m512i bytes, int lead) {
  __m512i made = look(t[lead], bytes);
  made = _mm512_mask_mov_epi8(made, kThird << 1, look(t[(lead + 1) % 3], bytes));
  return _mm512_mask_mov_epi8(made, kThird << 2, look(t[(lead + 2) % 3], bytes));
}

FASTFEED_WIDE void look_up_wide(const uint8_t* in, uint8_t* out, size_t bytes, const uint8_t (*tables)[256]) {
  const Table t[3] = {load(tables[0]), load(tables[1]), load(tables[2])};
  size_t i = 0;
  for (; i + 192 <= bytes; i += 192) {
    const __m512i a = _mm512_loadu_si512(in + i), b = _mm512_loadu_si512(in + i + 64);
    const __m512i c = _mm512_loadu_si512(in + i + 128);
    _mm512_storeu_si512(out + i, look(t, a, 0));
    _mm512_storeu_si512(out + i + 64, look(t, b, 1));
    _mm512_storeu_si512(out + i + 128, look(t, c, 2));
  }
  for (int lead = 0; i < bytes; i += 64, ++lead) {  // 64 = 3 * 21 + 1: what comes first moves on by one
    const __mmask64 rest = first(bytes - i);
    _mm512_mask_storeu_epi8(out + i, rest, look(t, _mm512_maskz_loadu_epi8(rest, in + i), lead));
  }
}
#endif

// Neighbors are often equal, and a counter cannot be raised again before it is written: so several of each.
template <int kChannels>
void count_in_turn(const uint8_t* in, size_t pixels, uint32_t (*counts)[256]) {
  constexpr int kTurns = 4;
  uint32_t turns[kTurns][kChannels][256] = {};
  size_t i = 0;
  for (; i + kTurns <= pixels; i += kTurns)
    for (int k = 0; k < kTurns; ++k)
      for (int c = 0; c < kChannels; ++c) ++turns[k][c][in[(i + size_t(k)) * kChannels + size_t(c)]];
  for (; i < pixels; ++i)
    for (int c = 0; c < kChannels; ++c) ++turns[0][c][in[i * kChannels + size_t(c)]];
  for (int c = 0; c < kChannels; ++c)
    for (int v = 0; v < 256; ++v) {
      counts[c][v] = 0;
      for (int k = 0; k < kTurns; ++k) counts[c][v] += turns[k][c][v];
    }
}

}  // namespace

bool wide_look_ups() {
#ifdef FASTFEED_WIDE
  static const bool wide = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vbmi");
  return wide;
#else
  return false;
#endif
}

void look_up(const uint8_t* in, uint8_t* out, size_t bytes, const uint8_t (*tables)[256], int channels) {
#ifdef FASTFEED_WIDE
  if (wide_look_ups() && channels == 1) return look_up_wide(in, out, bytes, tables[0]);
  if (wide_look_ups() && channels == 3) return look_up_wide(in, out, bytes, tables);
#endif
  look_up_plain(in, out, bytes, tables, channels);
}

void count(const uint8_t* in, size_t pixels, int channels, uint32_t (*counts)[256]) {
  switch (channels) {
    case 1: return count_in_turn<1>(in, pixels, counts);
    case 3: return count_in_turn<3>(in, pixels, counts);
  }
}

}  // namespace fastfeed
