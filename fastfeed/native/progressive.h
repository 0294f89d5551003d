// Huffman decoding of a progressive JPEG's scans, in place of libjpeg's.
//
// ITU T.81, annex G: a scan brings the first bits of the means, or of some other coefficients of one component, or one
// bit more of those. As in entropy.h, anything unusual is left to libjpeg.
#pragma once

#include <vector>

#include "bits.h"
#include "codes.h"

namespace fastfeed {

class Progressive {
 public:
  // Memory for the image whose header `info` has read; throws std::bad_alloc.
  void prepare(j_decompress_ptr info);
  void release();
  // Call when `info` has begun its first scan and read nothing of it. Takes info->client_data.
  void attach(j_decompress_ptr info, GiveUp give_up);

 private:
  // One unit of a scan into its blocks, false for anything unusual.
  bool first_means(Bits& bits, j_decompress_ptr info, JBLOCKROW* out);
  bool next_means(Bits& bits, j_decompress_ptr info, JBLOCKROW* out);
  bool first_bits(Bits& bits, JCOEF* block, uint64_t& known);
  bool next_bits(Bits& bits, JCOEF* block, uint64_t& known);

  static void start_pass(j_decompress_ptr info);
  static boolean decode_mcu(j_decompress_ptr info, JBLOCKROW* out);
  void scan(j_decompress_ptr info);
  void decode(j_decompress_ptr info, JBLOCKROW* out);
  bool run(j_decompress_ptr info, Bits& bits, JBLOCKROW* out, uint64_t* known);

  Codes dc_[NUM_HUFF_TBLS], ac_[NUM_HUFF_TBLS];
  const Codes* means_of_[MAX_COMPS_IN_SCAN];
  const Codes* codes_ = nullptr;
  GiveUp give_up_ = nullptr;
  void (*libjpegs_start_)(j_decompress_ptr) = nullptr;
  int begin_ = 0, end_ = 0, shift_ = 0;  // of this scan: its band of coefficients, the position of its lowest bit
  bool refines_ = false;
  int means_[MAX_COMPS_IN_SCAN];
  unsigned empty_ = 0;  // blocks to come in which this scan brings nothing new
  std::vector<uint64_t> known_[MAX_COMPONENTS];  // per block: which coefficients, in the file's order, are not 0
  std::vector<uint64_t>* blocks_ = nullptr;      // of this scan's component
  size_t block_ = 0;
  Cursor cursor_;
};

}  // namespace fastfeed
