// Hands the bytes of a file in memory to libjpeg, of a progressive one without the scans that a scale does not show.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <jpeglib.h>

namespace fastfeed {

class JpegSource {
 public:
  void attach(j_decompress_ptr info);
  void open(const uint8_t* data, size_t size);
  void close();

  // Call when a progressive file's header has been read (ITU T.81, annex G). Left out, unread, are: of components that
  // are shrunk to one pixel per block all scans but those of the means, since only these are shown; of components that are
  // shrunk by less, the last refinements, as far as pixels do without them with errors well below a level.
  void leave_out_scans(const jpeg_decompress_struct& info);
  // An end-of-image marker in what has not been read.
  bool ends_properly() const;

 private:
  struct Manager : jpeg_source_mgr {
    JpegSource* owner;
  };
  struct Piece {
    const uint8_t *at, *end;
  };
  static void nothing(j_decompress_ptr) {}
  static boolean fill(j_decompress_ptr info);
  static void skip(j_decompress_ptr info, long bytes);
  void hand_over(Piece piece);
  void add(const uint8_t* at, const uint8_t* end);

  Manager manager_{};
  const uint8_t* end_ = nullptr;
  std::vector<Piece> pieces_;  // of the file, in its order
  size_t next_ = 0;
};

}  // namespace fastfeed
