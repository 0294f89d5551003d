// Ops that need all channels of a pixel at once. Images of one channel stay as they are.
#pragma once

#include "image/image.h"

namespace fastfeed {

void grayscale(Image& image);
// Red and blue change places.
void bgr(Image& image);
void saturation(Image& image, double factor);
// shift: turns of the color circle.
void hue(Image& image, double shift);

}  // namespace fastfeed
