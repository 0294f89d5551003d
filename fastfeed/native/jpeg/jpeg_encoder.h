// Encodes pixels as a baseline JPEG.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace fastfeed {

struct Coding {
  int quality = 90;        // 1..100, as libjpeg scales its tables
  bool subsampled = true;  // chroma halved both ways, 4:2:0; else 4:4:4
  bool optimize = false;   // Huffman tables made for the image: all of its coefficients are held, 3 to 6 bytes a pixel
};

// Luma and chroma of a picture, a plane each. Rows are as many samples long as blocks of eight need; those beyond `width`
// repeat the last one.
struct YccPlanes {
  struct Plane {
    uint8_t* at;
    ptrdiff_t row;
    int height, width, step;  // step: pixels of the picture that a sample covers, each way
  };
  Plane part[3];
};

constexpr int kMaxSide = 65500;  // of a JPEG that libjpeg writes

// Keeps its memory between images; one thread at a time.
class JpegEncoder {
 public:
  JpegEncoder();
  ~JpegEncoder();

  // The file of height x width pixels, of three bytes without gaps or in planes, valid until the next call; the same bytes
  // for the same pixels. False: out of memory.
  bool write(const uint8_t* pixels, int height, int width, const Coding& coding);
  bool write(const YccPlanes& planes, const Coding& coding);
  const uint8_t* data() const { return file_.data(); }
  size_t size() const { return size_; }
  std::vector<uint8_t> take();  // a copy of just the file; memory beyond the usual size is freed
  void release();

 private:
  struct Libjpeg;

  template <class Rows>
  bool write(int height, int width, const Coding& coding, const Rows& rows);

  std::unique_ptr<Libjpeg> libjpeg_;
  std::vector<uint8_t> file_;
  size_t size_ = 0;
};

}  // namespace fastfeed
