// libFuzzer target: the first eight bytes say what is asked for, the rest is the file.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <vector>

#include "expect.h"
#include "decode/worker.h"
#include "decode/probe.h"

using namespace fastfeed;

namespace {

constexpr size_t kPrefix = 8;

// Windows that no caller should ask for: refused by an exception or served, but never a crash.
double wild(uint8_t byte, double length) {
  static const double odd[] = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity(), 1e300, -1e300, 1e-300, 3e9, -3e9};
  if (byte < 8) return odd[byte];
  return (int(byte) - 128) * length / 16.0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  if (size < kPrefix) return 0;
  // a copy of its own, so that reading one byte behind the file is seen
  const std::vector<uint8_t> file(input + kPrefix, input + size);
  const uint8_t* ask = input;
  const Header header = read_header(file.data(), file.size());
  Limits limits;
  limits.max_pixels = 4000000;

  const double rows = header.shown_height(), columns = header.shown_width();
  const bool usable = header.status == Status::ok;
  if (usable) {
    expect(rows >= 1 && columns >= 1, "a good header has a size");
    expect(header.orientation >= 1 && header.orientation <= 8, "orientation is 1 to 8");
  }
  Window window;
  const bool odd = ask[0] >= 0xF0;
  if (odd) {
    window = {wild(ask[3], rows), wild(ask[4], columns), wild(ask[5], rows), wild(ask[6], columns), false, false};
  } else {
    window.height = std::fmax(rows * (ask[5] + 1) / 256.0, 0.5);
    window.width = std::fmax(columns * (ask[6] + 1) / 256.0, 0.5);
    window.top = (rows - window.height) * ask[3] / 255.0;
    window.left = (columns - window.width) * ask[4] / 255.0;
    if (ask[7] & 1) {  // whole pixels, as most crops are
      window.height = std::fmax(std::floor(window.height), 1.0);
      window.width = std::fmax(std::floor(window.width), 1.0);
      window.top = std::floor(window.top), window.left = std::floor(window.left);
    }
  }
  window.flip_rows = ask[0] & 4, window.flip_columns = ask[0] & 8;
  const Filter filter = Filter(ask[0] & 3);
  if (ask[7] & 2) limits.enlarge = 1.0;
  const int height = 1 + ask[1] % 64, width = 1 + ask[2] % 64;
  // a slot of a larger batch: between its rows lie bytes that are not ours
  const size_t gap = ask[7] & 4 ? 5 : 0, row = size_t(width) * 3 + gap, all = row * size_t(height) - gap;

  static Worker kept;
  std::vector<uint8_t> pixels(all, 0xA5);
  Status status;
  try {
    status = kept.decode(file.data(), file.size(), window, filter, limits,
                         {pixels.data(), ptrdiff_t(row), height, width});
  } catch (const std::invalid_argument&) {
    expect(odd, "only windows outside the image are refused");
    return 0;
  }
  expect(status != Status::cancelled, "nothing was cancelled");
  for (int y = 0; y < height; ++y) {
    const uint8_t* at = pixels.data() + size_t(y) * row;
    if (status != Status::ok)
      for (int x = 0; x < width * 3; ++x) expect(at[x] == 0, "a bad file leaves zeros");
    if (y + 1 < height)
      for (size_t x = 0; x < gap; ++x) expect(at[size_t(width) * 3 + x] == 0xA5, "nothing is written between rows");
  }
  expect(usable || status == header.status, "what the probe refuses is refused for the same reason");

  if (ask[7] & 8) {  // a fresh worker, another filling, libjpeg alone: no pixel depends on any of them
    Worker fresh;
    std::vector<uint8_t> again(all, 0x5A);
    limits.plain = true;
    const Status reason = fresh.decode(file.data(), file.size(), window, filter, limits,
                                       {again.data(), ptrdiff_t(row), height, width});
    // restart intervals above the window are not looked at, so that their damage is not what is said of a file
    const bool leapt = header.restart_interval && reason == Status::corrupt &&
                       (status == Status::ok || status == Status::truncated);
    expect(reason == status || leapt, "libjpeg gives the same reason");
    for (int y = 0; y < height && !leapt; ++y)
      expect(!std::memcmp(&pixels[size_t(y) * row], &again[size_t(y) * row], size_t(width) * 3),
             "libjpeg gives the same pixels");
    limits.plain = false;
  }
  if (ask[7] & 16) {  // into a new file, which decodes in its turn
    const Coding coding{1 + ask[2] % 100, (ask[7] & 32) != 0, (ask[7] & 64) != 0};
    expect(kept.recode(file.data(), file.size(), window, filter, limits, height, width, coding) == status,
           "the same reason when it is to be written");
    if (status == Status::ok) {
      const std::vector<uint8_t> written(kept.file().data(), kept.file().data() + kept.file().size());
      const Header again = read_header(written.data(), written.size());
      expect(again.status == Status::ok && again.height == height && again.width == width, "a file of that size");
      expect(kept.decode(written.data(), written.size(), {0, 0, double(height), double(width), false, false}, filter,
                         limits, {pixels.data(), ptrdiff_t(row), height, width}) == Status::ok, "a sound file");
    }
  }
  return 0;
}
