// Sharpness, blurs, noise and JPEG compression, in place.
#pragma once

#include "image/image.h"

namespace fastfeed {

void sharpness(Image& image, double factor, Scratch& scratch);
// taps: pixels that the filter reaches across, odd.
void blur(Image& image, double sigma, int taps, Scratch& scratch);
// sigma: levels; steps: a table of normal numbers in units of 1 / `per_unit`, read from `offset` on, wrapping around.
void noise(Image& image, double sigma, int64_t offset, const int16_t* steps, int64_t length, int per_unit);
// The mean along a line of `length` pixels, odd; across, down: of a unit vector along it.
void motion_blur(Image& image, int length, double across, double down, Scratch& scratch);
// kernel: side of the square, odd, up to 15.
void median_blur(Image& image, int kernel, Scratch& scratch);
// There and back, 4:2:0; quality: libjpeg's, 1 to 100.
void jpeg_compression(Image& image, int quality, Scratch& scratch);

}  // namespace fastfeed
