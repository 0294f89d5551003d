#include "progressive.h"

namespace fastfeed {
namespace {

constexpr int kMean = 1 << 24;  // far beyond any picture's; damaged files add up to more

Hook& hook(j_decompress_ptr info) { return *reinterpret_cast<Hook*>(info->entropy); }

// Whether all but the mean are 0.
FASTFEED_INLINE bool flat(const JCOEF* block) {
  uint64_t words[16], any = 0;
  std::memcpy(words, block, sizeof words);
  JCOEF mean[4] = {block[0], 0, 0, 0};
  uint64_t first;
  std::memcpy(&first, mean, sizeof first);
  words[0] ^= first;
  for (const uint64_t word : words) any |= word;
  return !any;
}

// One bit more of a coefficient that is not 0 (G.1.2.3).
FASTFEED_INLINE void refine(Bits& bits, JCOEF& value, int bit) {
  bits.fill();
  if (bits.look(1) && !(value & bit)) value = JCOEF(value + (value >= 0 ? bit : -bit));
  bits.drop(1);
}

// The length of a run of blocks without news: 2^n and n bits more.
FASTFEED_INLINE unsigned run_length(Bits& bits, int n) {
  if (!n) return 1;
  const unsigned more = bits.look(n);
  bits.drop(n);
  return (1u << n) + more;
}

}  // namespace

void Progressive::attach(j_decompress_ptr info, GiveUp give_up) {
  give_up_ = give_up;
  info->client_data = this;
  libjpegs_start_ = hook(info).start_pass;
  hook(info).start_pass = start_pass;
  scan(info);
}

void Progressive::start_pass(j_decompress_ptr info) {
  auto& self = *static_cast<Progressive*>(info->client_data);
  self.libjpegs_start_(info);  // checks what the scan says of itself
  self.scan(info);
}

void Progressive::scan(j_decompress_ptr info) {
  begin_ = info->Ss, end_ = info->Se, shift_ = info->Al, refines_ = info->Ah != 0;
  if (!begin_ && !refines_) {
    for (int i = 0; i < info->comps_in_scan; ++i) {
      const int number = info->cur_comp_info[i]->dc_tbl_no;
      const JHUFF_TBL* table = info->dc_huff_tbl_ptrs[number];
      if (!table || !dc_[number].set(*table, false)) return;
      means_of_[i] = &dc_[number];
    }
  } else if (begin_) {
    const int number = info->cur_comp_info[0]->ac_tbl_no;
    const JHUFF_TBL* table = info->ac_huff_tbl_ptrs[number];
    if (!table || !ac_[number].set(*table, true)) return;
    codes_ = &ac_[number];
  }
  std::memset(means_, 0, sizeof means_);
  empty_ = 0;
  cursor_.begin(info->restart_interval);
  hook(info).decode_mcu = decode_mcu;
}

boolean Progressive::decode_mcu(j_decompress_ptr info, JBLOCKROW* out) {
  static_cast<Progressive*>(info->client_data)->decode(info, out);
  return TRUE;
}

void Progressive::decode(j_decompress_ptr info, JBLOCKROW* out) {
  const int restart = cursor_.unit(info);
  if (restart) std::memset(means_, 0, sizeof means_), empty_ = 0;
  bool good = restart >= 0;
  if (begin_ && empty_ && (!refines_ || flat(*out[0]))) {
    --empty_;
  } else {
    Bits bits = cursor_.open(info);
    good &= run(info, bits, out);
    good &= cursor_.close(info, bits);
  }
  if (!good) give_up_(reinterpret_cast<j_common_ptr>(info));
}

FASTFEED_CLONES
bool Progressive::run(j_decompress_ptr info, Bits& bits, JBLOCKROW* out) {
  if (begin_) return refines_ ? next_bits(bits, *out[0]) : first_bits(bits, *out[0]);
  return refines_ ? next_means(bits, info, out) : first_means(bits, info, out);
}

FASTFEED_INLINE bool Progressive::first_means(Bits& bits, j_decompress_ptr info, JBLOCKROW* out) {
  bool good = true;
  for (int i = 0; i < info->blocks_in_MCU; ++i) {
    const int component = info->MCU_membership[i];
    int value = 0;
    bits.fill();
    good &= next_value(bits, *means_of_[component], false, &value) >= 0;
    const int mean = means_[component] += value;
    good &= mean > -kMean && mean < kMean;
    (*out[i])[0] = JCOEF(unsigned(mean) << shift_);
  }
  return good;
}

FASTFEED_INLINE bool Progressive::next_means(Bits& bits, j_decompress_ptr info, JBLOCKROW* out) {
  for (int i = 0; i < info->blocks_in_MCU; ++i) {
    bits.fill();
    if (bits.look(1)) (*out[i])[0] = JCOEF((*out[i])[0] | 1 << shift_);
    bits.drop(1);
  }
  return true;
}

FASTFEED_INLINE bool Progressive::first_bits(Bits& bits, JCOEF* block) {
  for (int k = begin_; k <= end_; ++k) {
    int value = 0;
    bits.fill();
    const int zeros = next_value(bits, *codes_, true, &value);
    if (zeros & ~15) {
      if (zeros < 0) return false;
      empty_ = run_length(bits, zeros - kEnd) - 1;
      return true;
    }
    k += zeros;
    if (k > 63) return false;
    if (value) block[kPlace[k]] = JCOEF(unsigned(value) << shift_);
  }
  return true;
}

FASTFEED_INLINE bool Progressive::next_bits(Bits& bits, JCOEF* block) {
  const int bit = 1 << shift_;
  int k = begin_;
  if (!empty_) {
    for (; k <= end_; ++k) {
      int value = 0;
      bits.fill();
      int zeros = next_value(bits, *codes_, true, &value);
      if (zeros & ~15) {
        if (zeros < 0) return false;
        empty_ = run_length(bits, zeros - kEnd);
        break;
      }
      if (value < -1 || value > 1) return false;
      for (; k <= end_; ++k) {
        JCOEF& old = block[kPlace[k]];
        if (old) refine(bits, old, bit);
        else if (--zeros < 0) break;
      }
      if (value) {
        if (k > end_) return false;
        block[kPlace[k]] = JCOEF(value * bit);
      }
    }
  }
  if (empty_) {
    for (; k <= end_; ++k) {
      JCOEF& old = block[kPlace[k]];
      if (old) refine(bits, old, bit);
    }
    --empty_;
  }
  return true;
}

}  // namespace fastfeed
