// Decodes one image: crops, scales, rotates and flips a window into the caller's array.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "image/header.h"
#include "image/image.h"
#include "jpeg/jpeg_reader.h"
#include "decode/resample.h"
#include "jpeg/jpeg_encoder.h"

namespace fastfeed {

struct Limits {
  int64_t max_pixels = 300000000;
  double enlarge = 1.5;  // the window, shrunk while it is decoded, stays this much larger than the target on both axes
  Matte matte{255, 255, 255};
  bool plain = false;    // entropy decoding by libjpeg too: slower, with the same pixels and reasons
  int channels = 3;      // of results: RGB, or 1 for gray
};

struct Window {
  double top, left, height, width;  // pixels of the displayed image
  bool flip_rows, flip_columns;     // mirrored top to bottom, left to right
};

// Why a header is rejected before any pixel is allocated, or ok.
Status admit(const Header& header, size_t size, const Limits& limits);

// The largest of 8, 4, 2, 1 that a window may be shrunk by while it is decoded: it stays `enlarge` times the result's size.
int denominator(double height, double width, int rows, int columns, double enlarge);

// State of one thread, kept between images.
class Worker {
 public:
  Worker();
  // A bad image leaves zeros in the slot. `admitted`: there is room for held_bytes() already.
  Status decode(const uint8_t* data, size_t size, const Window& window, Filter filter, const Limits& limits,
                const Slot& slot, bool admitted = false);
  // As decode, then a JPEG of height x width pixels, at most limits.max_pixels; its bytes are in file() until the next
  // call. Most of a JPEG's picture is scaled in planes.
  Status recode(const uint8_t* data, size_t size, const Window& window, Filter filter, const Limits& limits, int height,
                int width, const Coding& coding);
  JpegEncoder& file() { return encoder_; }

  // Nanoseconds that decode() and recode() spent on resampling and on writing files, since they were set to 0.
  int64_t resize_ns = 0, encode_ns = 0;
  Scratch scratch;
  Stop stopped = nullptr;  // asked between rows: a stop need not wait for the end of an image

 private:
  // Checks the header and the window, and calls task(header) when there is room for what room(header) says.
  template <class Room, class Task>
  Status checked(const uint8_t* data, size_t size, const Window& window, const Limits& limits, Room room, Task task);
  Status pixels(const uint8_t* data, size_t size, const Header& header, const Window& window, Filter filter,
                const Limits& limits, const Slot& slot);
  Status run(const uint8_t* data, size_t size, const Header& header, const Window& window, Filter filter,
             const Limits& limits, const Slot& slot, bool plain);

  // Scales luma and chroma one by one. Status::unsupported_format: they have to become RGB first.
  Status scale_planes(const uint8_t* data, size_t size, const Header& header, const Window& window, Filter filter,
                      const Limits& limits, bool plain, YccPlanes& planes);  // which lie in pixels_ then

  RowReader& reader(const Header& header) { return *readers_[size_t(header.format)]; }

  std::array<std::unique_ptr<RowReader>, 4> readers_;  // by Format
  JpegReader* jpegs_;  // one of them
  Resampler resamplers_[3];
  Axes axes_;
  JpegEncoder encoder_;
  std::vector<uint8_t> pixels_, gray_;
};

}  // namespace fastfeed
