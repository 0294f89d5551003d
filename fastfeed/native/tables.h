// Table lookup, histograms and grayscale conversion of bytes. Pixels are interleaved, with 1 or 3 channels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastfeed {

// Whether `look_up` takes 64 bytes at a time here, whatever the tables: x86-64 with AVX-512 VBMI.
bool wide_look_ups();

// out[i] = tables[i % channels][in[i]]; `out` may be `in`.
void look_up(const uint8_t* in, uint8_t* out, size_t bytes, const uint8_t (*tables)[256], int channels);

// The same with wider entries, `size` bytes each (2 or 4): table[in[i]][i % channels]. out: pixels of channels, or, where
// `planar`, one plane per channel. `in` and `out` must not overlap.
void convert(const uint8_t* in, uint8_t* out, size_t pixels, int channels, const uint8_t* table, int size,
             bool planar);

// counts[c][v]: how many of channel c are v. At most 2^32 - 1 pixels.
void count(const uint8_t* in, size_t pixels, int channels, uint32_t (*counts)[256]);

// Pixels of three channels, each replaced by Pillow's L of it, three times.
void gray(uint8_t* rgb, size_t pixels);

}  // namespace fastfeed
