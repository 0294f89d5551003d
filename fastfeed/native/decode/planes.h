// A JPEG's luma and chroma scaled one by one, from its own planes to those of another JPEG: no chroma is enlarged only to be
// shrunk again, no color converted only to be converted back. Worker::scale_planes() does it.
#pragma once

#include <cstddef>

#include "image/header.h"
#include "decode/worker.h"
#include "jpeg/jpeg_encoder.h"

namespace fastfeed {

// The planes of a JPEG of this size, without memory.
YccPlanes laid_out(int height, int width, bool subsampled);
// Bytes at most that scaling to them keeps at once, as held_bytes().
size_t held_in_planes(const Header& header, const Window& window, const YccPlanes& planes, const Limits& limits);

}  // namespace fastfeed
