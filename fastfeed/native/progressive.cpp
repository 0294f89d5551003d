#include "progressive.h"

namespace fastfeed {
namespace {

Hook& hook(j_decompress_ptr info) { return *reinterpret_cast<Hook*>(info->entropy); }

constexpr size_t kKept = 1 << 16;  // blocks whose memory stays for the next image

// Coefficients `from` up to, not including, `to` <= 64.
FASTFEED_INLINE uint64_t band(int from, int to) {
  const uint64_t below = to < 64 ? (uint64_t(1) << to) - 1 : ~uint64_t(0);
  return from < 64 ? below >> from << from : 0;
}

// One bit more of each of these coefficients, none of them 0 (G.1.2.3).
FASTFEED_INLINE void refine(Bits& bits, JCOEF* block, uint64_t which, int bit) {
  for (; which; which &= which - 1) {
    JCOEF& value = block[kPlace[__builtin_ctzll(which)]];
    bits.fill();
    const int more = bits.look(1) && !(value & bit) ? bit : 0, sign = value >> 15;
    value = JCOEF(value + ((more ^ sign) - sign));
    bits.drop(1);
  }
}

// The length of a run of blocks without new bits: 2^n and n bits more.
FASTFEED_INLINE unsigned run_length(Bits& bits, int n) {
  if (!n) return 1;
  const unsigned more = bits.look(n);
  bits.drop(n);
  return (1u << n) + more;
}

}  // namespace

void Progressive::prepare(j_decompress_ptr info) {
  for (int i = 0; i < info->num_components; ++i)
    known_[i].assign(size_t(info->comp_info[i].width_in_blocks) * info->comp_info[i].height_in_blocks, 0);
}

void Progressive::release() {
  for (auto& known : known_)
    if (known.size() > kKept) std::vector<uint64_t>().swap(known);
}

void Progressive::attach(j_decompress_ptr info, GiveUp give_up) {
  give_up_ = give_up;
  info->client_data = this;
  libjpegs_start_ = hook(info).start_pass;
  hook(info).start_pass = start_pass;
  scan(info);
}

void Progressive::start_pass(j_decompress_ptr info) {
  auto& self = *static_cast<Progressive*>(info->client_data);
  self.libjpegs_start_(info);  // validates the header of the scan
  self.scan(info);
}

void Progressive::scan(j_decompress_ptr info) {
  begin_ = info->Ss, end_ = info->Se, shift_ = info->Al, refines_ = info->Ah != 0;
  if (!begin_ && !refines_) {
    for (int i = 0; i < info->comps_in_scan; ++i) {
      const int number = info->cur_comp_info[i]->dc_tbl_no;
      const JHUFF_TBL* table = info->dc_huff_tbl_ptrs[number];
      if (!table || !dc_[number].set(*table, false)) give_up_(reinterpret_cast<j_common_ptr>(info));
      means_of_[i] = &dc_[number];
    }
  } else if (begin_) {
    const int number = info->cur_comp_info[0]->ac_tbl_no;
    const JHUFF_TBL* table = info->ac_huff_tbl_ptrs[number];
    if (!table || !ac_[number].set(*table, true)) give_up_(reinterpret_cast<j_common_ptr>(info));
    codes_ = &ac_[number];
    blocks_ = &known_[info->cur_comp_info[0]->component_index];
  }
  std::memset(means_, 0, sizeof means_);
  empty_ = 0;
  block_ = 0;
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
  uint64_t* known = nullptr;
  if (begin_) {
    if (block_ == blocks_->size()) give_up_(reinterpret_cast<j_common_ptr>(info));
    known = blocks_->data() + block_++;
  }
  if (begin_ && empty_ && !(refines_ && *known & band(begin_, end_ + 1))) {
    --empty_;
  } else {
    Bits bits = cursor_.open(info);
    good &= run(info, bits, out, known);
    good &= cursor_.close(info, bits);
  }
  if (!good) give_up_(reinterpret_cast<j_common_ptr>(info));
}

FASTFEED_BIT_CLONES
bool Progressive::run(j_decompress_ptr info, Bits& bits, JBLOCKROW* out, uint64_t* known) {
  if (begin_) return refines_ ? next_bits(bits, *out[0], *known) : first_bits(bits, *out[0], *known);
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

FASTFEED_INLINE bool Progressive::first_bits(Bits& bits, JCOEF* block, uint64_t& known) {
  for (int k = begin_; k <= end_; ++k) {
    int value = 0;
    bits.fill();
    const int zeros = next_value(bits, *codes_, true, &value);
    if (zeros & ~15) {
      if (zeros < 0) return false;
      empty_ = run_length(bits, zeros - kEnd) - 1;
      return true;
    }
    if ((k += zeros) > 63) return false;
    if (!value) continue;
    value *= 1 << shift_;
    if (value != JCOEF(value)) return false;
    block[kPlace[k]] = JCOEF(value);
    known |= uint64_t(1) << k;
  }
  return true;
}

FASTFEED_INLINE bool Progressive::next_bits(Bits& bits, JCOEF* block, uint64_t& known) {
  const int bit = 1 << shift_, end = end_ + 1;
  int k = begin_;
  uint64_t fresh = 0;
  while (!empty_ && k < end) {
    int value = 0;
    bits.fill();
    int zeros = next_value(bits, *codes_, true, &value);
    if (zeros & ~15) {
      if (zeros < 0) return false;
      empty_ = run_length(bits, zeros - kEnd);
      break;
    }
    if (value < -1 || value > 1) return false;
    // the value goes where so many zeros have been passed; what is not 0 on the way gets its bit
    uint64_t free = ~known & band(k, end);
    for (; zeros && free; --zeros) free &= free - 1;
    const int place = free ? __builtin_ctzll(free) : end;
    refine(bits, block, known & band(k, place), bit);
    if (value) {
      if (place == end) return false;
      block[kPlace[place]] = JCOEF(value * bit);
      fresh |= uint64_t(1) << place;
    }
    k = place + 1;
  }
  if (empty_) {
    refine(bits, block, known & band(k, end), bit);
    --empty_;
  }
  known |= fresh;
  return true;
}

}  // namespace fastfeed
