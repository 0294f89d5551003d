// Huffman decoding of a progressive JPEG's scans, in place of libjpeg's.
//
// ITU T.81, annex G: a scan brings the first bits of the means, or of some other coefficients of one component, or one
// bit more of those. As in entropy.h, anything unusual is left to libjpeg.
#pragma once

#include <vector>

#include "jpeg/bits.h"
#include "jpeg/codes.h"

namespace fastfeed {

class Progressive {
 public:
  // Memory for the image whose header `info` has read, and its dimensions; throws std::bad_alloc.
  void prepare(j_decompress_ptr info);
  void release();
  // Call when `info` has begun its first scan and read nothing of it. Takes info->client_data.
  void attach(j_decompress_ptr info, GiveUp give_up);

  // What decodes one unit of a scan after the other reads and writes.
  struct Scan {
    Progressive* owner = nullptr;
    const Codes* means_of[MAX_COMPS_IN_SCAN];
    const Codes* codes = nullptr;
    GiveUp give_up = nullptr;
    int begin = 0, end = 0, shift = 0;  // its band of coefficients, the position of its lowest bit
    bool refines = false;
    int means[MAX_COMPS_IN_SCAN];
    unsigned empty = 0;  // blocks to come in which this scan brings nothing new
    std::vector<uint64_t>* blocks = nullptr;  // of this scan's component
    size_t block = 0;
    Cursor cursor;
  };

 private:
  static void start_pass(j_decompress_ptr info);
  void begin(j_decompress_ptr info);

  Scan scan_;
  Codes dc_[NUM_HUFF_TBLS], ac_[NUM_HUFF_TBLS];
  void (*libjpegs_start_)(j_decompress_ptr) = nullptr;
  std::vector<uint64_t> known_[MAX_COMPONENTS];  // per block: which coefficients, in the file's order, are not 0
};

}  // namespace fastfeed
