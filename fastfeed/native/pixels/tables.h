// Table lookup, histograms and grayscale conversion of bytes. Pixels are interleaved, with 1 or 3 channels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastfeed {

// Whether `look_up` takes 64 bytes at a time here, whatever the tables: x86-64 with AVX-512 VBMI.
bool has_vbmi();

// out[i] = tables[i % channels][in[i]]; `out` may be `in`.
void look_up(const uint8_t* in, uint8_t* out, size_t bytes, const uint8_t (*tables)[256], int channels);

// Tables of wider entries, `size` bytes each (2 or 4), by channel: as they are, and as one table per byte of the entries,
// for look-ups of 64 bytes at a time.
struct EntryTables {
  int channels, size;
  alignas(64) uint8_t entries[3][256 * 4];  // [channel][value * size + byte]
  alignas(64) uint8_t bytes[3][4][256];     // [channel][byte][value]

  EntryTables(int channels, int size) : channels(channels), size(size) {}
  EntryTables(const uint8_t* table, int channels, int size);  // (256, channels) entries
  // Those of bytes that look-ups in `tables` (one, or one per channel) change before.
  EntryTables after(const uint8_t (*tables)[256], int count) const;
};

// Bytes to entries. out: pixels of channels, or, where `planar`, one plane per channel. `in` and `out` must not overlap.
void convert(const uint8_t* in, uint8_t* out, size_t pixels, const EntryTables& tables, bool planar);

// counts[c][v]: how many of channel c are v. At most 2^32 - 1 pixels.
void count(const uint8_t* in, size_t pixels, int channels, uint32_t (*counts)[256]);

// Pixels of three channels, each replaced by Pillow's L of it, three times.
void gray(uint8_t* rgb, size_t pixels);

}  // namespace fastfeed
