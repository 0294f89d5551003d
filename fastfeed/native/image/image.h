// Pixels in memory, and the memory that ops use on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace fastfeed {

// uint8 pixels, rows and channels contiguous: height x width x channels, 1 or 3 channels.
struct Image {
  uint8_t* at;
  int height, width, channels;

  size_t row() const { return size_t(width) * size_t(channels); }  // bytes of a row
  size_t pixels() const { return size_t(height) * size_t(width); }
  size_t bytes() const { return pixels() * size_t(channels); }
};

// uint8 pixels, channels contiguous: pixel (y, x) lies at at + y * row + x * channels.
struct Slot {
  uint8_t* at;
  ptrdiff_t row;
  int height, width;
};

// Where output pixels go: pixel (y, x) is written to at + y * row + x * column (bytes). Strides may be negative, which
// is how orientation and flips cost nothing.
struct Target {
  uint8_t* at;
  ptrdiff_t row, column;
};

// A stack of memory for one thread: what is taken while a Frame is open is released when the frame ends. Memory up to
// kKept bytes stays for the next image; what a larger one needed is freed with it.
class Scratch {
 public:
  // Of any content, aligned to 64 bytes, and readable for 64 bytes beyond its end. Throws std::bad_alloc.
  uint8_t* memory(size_t count);

  class Frame {
   public:
    explicit Frame(Scratch& scratch) : scratch_(scratch), block_(scratch.block_), used_(scratch.used_) {}
    ~Frame() { scratch_.rewind(block_, used_); }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

    uint8_t* bytes(size_t count) { return scratch_.memory(count); }
    template <class T>
    T* take(size_t count) {
      return reinterpret_cast<T*>(scratch_.memory(count * sizeof(T)));
    }

   private:
    Scratch& scratch_;
    size_t block_, used_;
  };

 private:
#ifdef FASTFEED_EXACT_SCRATCH  // memory of its own for everything, so that sanitizers see where it ends
  static constexpr size_t kKept = 0, kBlock = 0;
#else
  static constexpr size_t kKept = size_t(8) << 20, kBlock = size_t(1) << 20;
#endif
  struct Block {
    std::unique_ptr<uint8_t[]> memory;
    size_t size;
  };
  void rewind(size_t block, size_t used);

  std::vector<Block> blocks_;
  size_t block_ = 0, used_ = 0;  // the block in use, and how much of it
};

}  // namespace fastfeed
