#include <cstring>

#include "pixels/vbmi_lookup.h"

namespace fastfeed {
namespace {

// Keeps GCC from vectorizing a loop of look-ups: it takes bytes out of registers and puts entries into others, which
// takes twice as long.
inline void keep_scalar(size_t& v) {
#if defined(__GNUC__)
  __asm__("" : "+r"(v));
#else
  (void)v;
#endif
}

// From pixel `first` on.
template <class Entry, int kChannels>
void convert_plain(const uint8_t* in, uint8_t* out, size_t first, size_t pixels, const EntryTables& of, bool planar) {
  const Entry* tables[kChannels];
  for (int c = 0; c < kChannels; ++c) tables[c] = reinterpret_cast<const Entry*>(of.entries[c]);
  Entry* const entries = reinterpret_cast<Entry*>(out);
  if (!planar || kChannels == 1) {
    for (size_t i = first; i < pixels; ++i)
      for (int c = 0; c < kChannels; ++c) entries[i * kChannels + size_t(c)] = tables[c][in[i * kChannels + size_t(c)]];
    return;
  }
  constexpr size_t kAtOnce = 512;  // so that the bytes stay in the first cache from channel to channel
  for (size_t i = first; i < pixels; i += kAtOnce)
    for (int c = 0; c < kChannels; ++c) {
      const size_t end = pixels - i < kAtOnce ? pixels : i + kAtOnce;
      const uint8_t* from = in + i * kChannels + size_t(c);
#pragma GCC unroll 8
      for (size_t k = i; k < end; ++k, from += kChannels) {
        size_t v = *from;
        keep_scalar(v);
        entries[size_t(c) * pixels + k] = tables[c][v];
      }
    }
}

#ifdef FASTFEED_VBMI
template <int kSize>
struct Entries {
  Table byte[kSize];
};

template <int kSize>
FASTFEED_VBMI inline Entries<kSize> entries_of(const EntryTables& tables, int channel) {
  Entries<kSize> entries;
  for (int b = 0; b < kSize; ++b) entries.byte[b] = load(tables.bytes[channel][b]);
  return entries;
}

// The order of 64 bytes after which `store` leaves their entries in the order of before: it works on each quarter of
// its registers alone.
template <int kSize>
FASTFEED_VBMI inline __m512i dealt(__m512i bytes) {
  if (kSize == 2) return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), bytes);
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, bytes);
}

// Large images go past the caches: they would be fetched into them only to be overwritten.
constexpr size_t kStreamed = size_t(128) << 10;  // bytes

template <bool kStream>
FASTFEED_VBMI inline void put(uint8_t* out, __m512i v) {
  if (kStream) _mm512_stream_si512(reinterpret_cast<__m512i*>(out), v);
  else _mm512_storeu_si512(out, v);
}

// 64 entries from their bytes.
template <int kSize, bool kStream>
FASTFEED_VBMI inline void store(uint8_t* out, const __m512i (&b)[kSize]) {
  __m512i low = _mm512_unpacklo_epi8(b[0], b[1]), high = _mm512_unpackhi_epi8(b[0], b[1]);
  if constexpr (kSize == 4) {
    const __m512i then_low = _mm512_unpacklo_epi8(b[2], b[3]), then_high = _mm512_unpackhi_epi8(b[2], b[3]);
    put<kStream>(out + 128, _mm512_unpacklo_epi16(high, then_high));
    put<kStream>(out + 192, _mm512_unpackhi_epi16(high, then_high));
    high = _mm512_unpackhi_epi16(low, then_low);
    low = _mm512_unpacklo_epi16(low, then_low);
  }
  put<kStream>(out, low);
  put<kStream>(out + 64, high);
}

template <int kSize, bool kStream>
FASTFEED_VBMI inline void convert_64(uint8_t* out, const Entries<kSize>& entries, __m512i bytes) {
  bytes = dealt<kSize>(bytes);
  __m512i made[kSize];
  for (int b = 0; b < kSize; ++b) made[b] = look(entries.byte[b], bytes);
  store<kSize, kStream>(out, made);
}

// One channel.
template <int kSize, bool kStream>
FASTFEED_VBMI size_t convert_one(const uint8_t* in, uint8_t* out, size_t bytes, const Entries<kSize>& entries) {
  size_t i = 0;
  for (; i + 64 <= bytes; i += 64) convert_64<kSize, kStream>(out + i * kSize, entries, _mm512_loadu_si512(in + i));
  return i;
}

// Three interleaved channels. Each place of a register holds one of them in the first of three registers, another in
// the second and the third one in the third, so they are sorted by channel, and back, without a move.
template <int kSize, bool kStream>
FASTFEED_VBMI size_t convert_pixels(const uint8_t* in, uint8_t* out, size_t bytes, const Entries<kSize> (&entries)[3]) {
  __mmask64 third[3];  // every third place from the first, second and third one on, dealt
  for (int k = 0; k < 3; ++k) third[k] = _mm512_movepi8_mask(dealt<kSize>(_mm512_movm_epi8(kThird << k)));
  // register r holds channel c where register 0 holds c - r, as 64 = 3 * 21 + 1
  const auto sorted = [&third](const __m512i (&v)[3], int c) FASTFEED_VBMI {
    return _mm512_mask_blend_epi8(third[(c + 1) % 3], _mm512_mask_blend_epi8(third[(c + 2) % 3], v[0], v[1]), v[2]);
  };
  size_t i = 0;
  for (; i + 192 <= bytes; i += 192) {
    __m512i v[3], made[kSize][3];
    for (int r = 0; r < 3; ++r) v[r] = dealt<kSize>(_mm512_loadu_si512(in + i + 64 * r));
    for (int c = 0; c < 3; ++c) {
      const __m512i channel = sorted(v, c);
      for (int b = 0; b < kSize; ++b) made[b][c] = look(entries[c].byte[b], channel);
    }
    for (int r = 0; r < 3; ++r) {
      __m512i bytes_of[kSize];
      for (int b = 0; b < kSize; ++b)
        bytes_of[b] = _mm512_mask_blend_epi8(third[(4 - r) % 3], made[b][0], made[b][1]);
      for (int b = 0; b < kSize; ++b)
        bytes_of[b] = _mm512_mask_blend_epi8(third[(5 - r) % 3], bytes_of[b], made[b][2]);
      store<kSize, kStream>(out + (i + 64 * size_t(r)) * kSize, bytes_of);
    }
  }
  return i;
}

// Three channels into three planes, 64 pixels at a time.
template <int kSize, bool kStream>
FASTFEED_VBMI size_t convert_planes(const uint8_t* in, uint8_t* out, size_t pixels,
                                    const Entries<kSize> (&entries)[3]) {
  const Channels channels;
  size_t i = 0;
  for (; i + 64 <= pixels; i += 64) {
    const __m512i v[3] = {_mm512_loadu_si512(in + 3 * i), _mm512_loadu_si512(in + 3 * i + 64),
                          _mm512_loadu_si512(in + 3 * i + 128)};
    for (int c = 0; c < 3; ++c)
      convert_64<kSize, kStream>(out + (size_t(c) * pixels + i) * kSize, entries[c], channels.pick(v, c));
  }
  return i;
}

template <int kSize, bool kStream>
FASTFEED_VBMI size_t convert_vbmi(const uint8_t* in, uint8_t* out, size_t pixels, const EntryTables& tables,
                                  bool planar) {
  if (tables.channels == 1) return convert_one<kSize, kStream>(in, out, pixels, entries_of<kSize>(tables, 0));
  const Entries<kSize> entries[3] = {entries_of<kSize>(tables, 0), entries_of<kSize>(tables, 1),
                                     entries_of<kSize>(tables, 2)};
  if (planar) return convert_planes<kSize, kStream>(in, out, pixels, entries);
  return convert_pixels<kSize, kStream>(in, out, 3 * pixels, entries) / 3;
}

// As many pixels as there are in whole registers; returns how many that are.
template <int kSize>
size_t convert_vbmi(const uint8_t* in, uint8_t* out, size_t pixels, const EntryTables& tables, bool planar) {
  const bool aligned = reinterpret_cast<uintptr_t>(out) % 64 == 0 && (!planar || pixels * kSize % 64 == 0);
  if (!aligned || pixels * size_t(tables.channels) * kSize < kStreamed)
    return convert_vbmi<kSize, false>(in, out, pixels, tables, planar);
  const size_t done = convert_vbmi<kSize, true>(in, out, pixels, tables, planar);
  _mm_sfence();  // before another thread is told that the image is there
  return done;
}
#endif

template <class Entry>
void convert_all(const uint8_t* in, uint8_t* out, size_t pixels, const EntryTables& tables, bool planar) {
  size_t done = 0;
#ifdef FASTFEED_VBMI
  if (has_vbmi()) done = convert_vbmi<int(sizeof(Entry))>(in, out, pixels, tables, planar);
#endif
  if (done == pixels) return;
  if (tables.channels == 1) convert_plain<Entry, 1>(in, out, done, pixels, tables, planar);
  else convert_plain<Entry, 3>(in, out, done, pixels, tables, planar);
}

}  // namespace

EntryTables::EntryTables(const uint8_t* table, int channels, int size) : channels(channels), size(size) {
  for (int v = 0; v < 256; ++v)
    for (int c = 0; c < channels; ++c)
      for (int b = 0; b < size; ++b) entries[c][v * size + b] = bytes[c][b][v] = table[(v * channels + c) * size + b];
}

EntryTables EntryTables::after(const uint8_t (*tables)[256], int count) const {
  EntryTables made(channels, size);
  for (int c = 0; c < channels; ++c) {
    const uint8_t* table = tables[count == 1 ? 0 : c];
    for (int b = 0; b < size && has_vbmi(); ++b) look_up(table, made.bytes[c][b], 256, &bytes[c][b], 1);
    for (int v = 0; v < 256; ++v) std::memcpy(made.entries[c] + v * size, entries[c] + table[v] * size, size_t(size));
  }
  return made;
}

void convert(const uint8_t* in, uint8_t* out, size_t pixels, const EntryTables& tables, bool planar) {
  if (tables.size == 2) convert_all<uint16_t>(in, out, pixels, tables, planar);
  else convert_all<uint32_t>(in, out, pixels, tables, planar);
}

}  // namespace fastfeed
