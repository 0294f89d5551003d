#include "entropy.h"

#include <cstring>

#include "bits.h"

namespace fastfeed {
namespace {

boolean decode_mcu(j_decompress_ptr info, JBLOCKROW* blocks) {
  return static_cast<Entropy*>(info->client_data)->decode(info, blocks);
}

}  // namespace

bool Entropy::attach(j_decompress_ptr info, JDIMENSION left, JDIMENSION width, GiveUp give_up) {
  count_ = info->blocks_in_MCU;
  for (int i = 0; i < count_; ++i) {
    const int component = info->MCU_membership[i];
    const jpeg_component_info& part = *info->cur_comp_info[component];
    const JHUFF_TBL *dc = info->dc_huff_tbl_ptrs[part.dc_tbl_no], *ac = info->ac_huff_tbl_ptrs[part.ac_tbl_no];
    if (!dc || !ac || !dc_[part.dc_tbl_no].set(*dc, false) || !ac_[part.ac_tbl_no].set(*ac, true)) return false;
    blocks_[i] = {&dc_[part.dc_tbl_no], &ac_[part.ac_tbl_no], component, shrunk_size(part) == 1};
  }
  give_up_ = give_up;
  columns_ = info->MCUs_per_row;
  // as libjpeg counts them, and one more than it would look at
  unsigned pixels = info->comps_in_scan == 1 ? 8 : 8 * unsigned(info->max_h_samp_factor);
  pixels = pixels / info->scale_denom * info->scale_num;
  first_ = left / pixels, last_ = (left + width) / pixels + 1;
  column_ = 0;
  std::memset(means_, 0, sizeof means_);
  cursor_.begin(info->restart_interval);
  info->client_data = this;
  reinterpret_cast<Hook*>(info->entropy)->decode_mcu = decode_mcu;
  return true;
}

FASTFEED_BIT_CLONES
boolean Entropy::decode(j_decompress_ptr info, JBLOCKROW* out) {
  const int restart = cursor_.unit(info);
  if (restart) std::memset(means_, 0, sizeof means_);
  bool good = restart >= 0;
  Bits bits = cursor_.open(info);
  const bool shown = out && column_ >= first_ && column_ <= last_;
  if (++column_ == columns_) column_ = 0;
  for (int i = 0; i < count_; ++i) {
    const Block& block = blocks_[i];
    int value = 0;
    bits.fill();
    good &= next_value(bits, *block.dc, false, &value) >= 0;
    const int mean = means_[block.component] += value;
    good &= mean > -kMean && mean < kMean;
    if (shown && !block.flat) {
      JCOEF* coefficients = *out[i];
      coefficients[0] = JCOEF(mean);
      for (int k = 1; k < 64; ++k) {
        bits.fill();
        const int zeros = next_value(bits, *block.ac, true, &value);
        if (zeros & ~15) {
          good &= zeros >= kEnd;
          break;
        }
        if ((k += zeros) > 63) {
          good = false;
          break;
        }
        coefficients[kPlace[k]] = JCOEF(value);
      }
      continue;
    }
    if (out) (*out[i])[0] = JCOEF(mean);
    for (int k = 1; k < 64;) {
      bits.fill();
      const uint32_t leap = block.ac->leap[bits.look(kLook)];
      const int passed = leap >> 8 & 0xFF;
      const bool end = leap >> 16;
      if ((leap & 0xFF) && k + passed + end <= 64) {
        bits.drop(leap & 0xFF);
        k += passed;
        if (end) break;
        continue;
      }
      const int zeros = next_value(bits, *block.ac, true, &value);
      if (zeros & ~15) {
        good &= zeros >= kEnd;
        break;
      }
      k += zeros + 1;
      good &= k <= 64;
    }
  }
  good &= cursor_.close(info, bits);
  if (!good) give_up_(reinterpret_cast<j_common_ptr>(info));
  return TRUE;
}

}  // namespace fastfeed
