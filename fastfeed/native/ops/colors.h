// Ops that need all channels of a pixel at once. Images of one channel stay as they are.
#pragma once

#include "image/image.h"

namespace fastfeed {

void grayscale(Image& image);
// from: of each of three channels the one that it shows; -1: its byte of `fill`. Images of one channel stay.
void pick_channels(Image& image, const int* from, const uint8_t* fill);
void saturation(Image& image, double factor);
// shift: turns of the color circle.
void hue(Image& image, double shift);

}  // namespace fastfeed
