// What ops measure of an image before they change it. Pixels are interleaved, with 1 or 3 channels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastfeed {

// sums[c]: of all bytes of channel c.
void sum(const uint8_t* in, size_t pixels, int channels, uint64_t* sums);

uint64_t sum_of_squares(const uint8_t* in, size_t bytes);

// The least and the greatest byte of each channel. At least one pixel.
void extremes(const uint8_t* in, size_t pixels, int channels, uint8_t* least, uint8_t* greatest);

}  // namespace fastfeed
