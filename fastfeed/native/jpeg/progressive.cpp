#include "jpeg/progressive.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "jpeg/progressive.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {

// Coefficients `from` up to, not including, `to` <= 64.
FASTFEED_INLINE uint64_t band(int from, int to) {
  const uint64_t below = to < 64 ? (uint64_t(1) << to) - 1 : ~uint64_t(0);
  return from < 64 ? below >> from << from : 0;
}

// Of the bits of `set`, the one after the lowest `n`; 0 where there is none. PDEP is slow in the first Zen processors, which
// have no AVX-512.
FASTFEED_INLINE uint64_t nth_bit(uint64_t set, int n) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86_64
  return _pdep_u64(uint64_t(1) << n, set);
#else
  for (; n && set; --n) set &= set - 1;
  return set & (~set + 1);
#endif
}

// One bit more of each of these coefficients, none of them 0 (G.1.2.3).
FASTFEED_INLINE void refine(Bits& bits, JCOEF* block, uint64_t which, int bit) {
  while (which) {
    bits.fill();
    const int count = std::min(__builtin_popcountll(which), 32);
    uint64_t more = bits.held;
    bits.drop(count);
    for (int i = 0; i < count; ++i, more <<= 1, which &= which - 1) {
      JCOEF& value = block[kPlace[__builtin_ctzll(which)]];
      const int set = more >> 63 ? bit & ~value : 0, sign = value >> 15;
      value = JCOEF(value + ((set ^ sign) - sign));
    }
  }
}

// The length of a run of blocks without new bits: 2^n and n bits more.
FASTFEED_INLINE unsigned run_length(Bits& bits, int n) {
  if (!n) return 1;
  const unsigned more = bits.look(n);
  bits.drop(n);
  return (1u << n) + more;
}

FASTFEED_INLINE bool first_means(Progressive::Scan& scan, Bits& bits, j_decompress_ptr info, JBLOCKROW* out) {
  bool good = true;
  for (int i = 0; i < info->blocks_in_MCU; ++i) {
    const int component = info->MCU_membership[i];
    int value = 0;
    bits.fill();
    good &= next_value(bits, *scan.means_of[component], false, &value) >= 0;
    const int mean = scan.means[component] += value;
    good &= mean > -kMean && mean < kMean;
    (*out[i])[0] = JCOEF(unsigned(mean) << scan.shift);
  }
  return good;
}

FASTFEED_INLINE bool next_means(Progressive::Scan& scan, Bits& bits, j_decompress_ptr info, JBLOCKROW* out) {
  for (int i = 0; i < info->blocks_in_MCU; ++i) {
    bits.fill();
    (*out[i])[0] = JCOEF((*out[i])[0] | bits.look(1) << scan.shift);
    bits.drop(1);
  }
  return true;
}

FASTFEED_INLINE bool first_bits(Progressive::Scan& scan, Bits& bits, JCOEF* block, uint64_t& known) {
  for (int k = scan.begin; k <= scan.end; ++k) {
    int value = 0;
    bits.fill();
    const int zeros = next_value(bits, *scan.codes, true, &value);
    if (zeros & ~15) {
      if (zeros < 0) return false;
      scan.empty = run_length(bits, zeros - kEnd) - 1;
      return true;
    }
    if ((k += zeros) > 63) return false;
    if (!value) continue;
    value *= 1 << scan.shift;
    if (value != JCOEF(value)) return false;
    block[kPlace[k]] = JCOEF(value);
    known |= uint64_t(1) << k;
  }
  return true;
}

FASTFEED_INLINE bool next_bits(Progressive::Scan& scan, Bits& bits, JCOEF* block, uint64_t& known) {
  const int bit = 1 << scan.shift, end = scan.end + 1;
  int k = scan.begin;
  uint64_t fresh = 0;
  while (!scan.empty && k < end) {
    int value = 0;
    bits.fill();
    const int zeros = next_value(bits, *scan.codes, true, &value);
    if (zeros & ~15) {
      if (zeros < 0) return false;
      scan.empty = run_length(bits, zeros - kEnd);
      break;
    }
    if (value < -1 || value > 1) return false;
    // the value goes where so many zeros have been passed; what is not 0 on the way gets its bit
    const uint64_t free = nth_bit(~known & band(k, end), zeros);
    const int place = free ? __builtin_ctzll(free) : end;
    refine(bits, block, known & band(k, place), bit);
    if (value) {
      if (place == end) return false;
      block[kPlace[place]] = JCOEF(value * bit);
      fresh |= uint64_t(1) << place;
    }
    k = place + 1;
  }
  if (scan.empty) {
    refine(bits, block, known & band(k, end), bit);
    --scan.empty;
  }
  known |= fresh;
  return true;
}

FASTFEED_INLINE bool run(Progressive::Scan& scan, j_decompress_ptr info, Bits& bits, JBLOCKROW* out, uint64_t* known) {
  if (scan.begin) return scan.refines ? next_bits(scan, bits, *out[0], *known) : first_bits(scan, bits, *out[0], *known);
  return scan.refines ? next_means(scan, bits, info, out) : first_means(scan, bits, info, out);
}

boolean decode_mcu(j_decompress_ptr info, JBLOCKROW* out) {
  auto& scan = *static_cast<Progressive::Scan*>(info->client_data);
  const int restart = scan.cursor.unit(info);
  if (restart) std::memset(scan.means, 0, sizeof scan.means), scan.empty = 0;
  bool good = restart >= 0;
  uint64_t* known = nullptr;
  if (scan.begin) {
    if (scan.block == scan.blocks->size()) scan.give_up(reinterpret_cast<j_common_ptr>(info));
    known = scan.blocks->data() + scan.block++;
  }
  if (scan.begin && scan.empty && !(scan.refines && *known & band(scan.begin, scan.end + 1))) {
    --scan.empty;
  } else {
    Bits bits = scan.cursor.open(info);
    good &= run(scan, info, bits, out, known);
    good &= scan.cursor.close(info, bits);
  }
  if (!good) scan.give_up(reinterpret_cast<j_common_ptr>(info));
  return TRUE;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {
namespace {

HWY_EXPORT(decode_mcu);

Hook& hook(j_decompress_ptr info) { return *reinterpret_cast<Hook*>(info->entropy); }

constexpr size_t kKept = 1 << 16;  // blocks whose memory stays for the next image

}  // namespace

void Progressive::prepare(j_decompress_ptr info) {
  for (int i = 0; i < info->num_components; ++i) {
    const jpeg_component_info& part = info->comp_info[i];
    const bool means_only = shrunk_size(part) == 1;  // its other scans are left out
    known_[i].assign(means_only ? 0 : size_t(part.width_in_blocks) * part.height_in_blocks, 0);
  }
}

void Progressive::release() {
  for (auto& known : known_)
    if (known.size() > kKept) std::vector<uint64_t>().swap(known);
}

void Progressive::attach(j_decompress_ptr info, GiveUp give_up) {
  scan_.give_up = give_up;
  scan_.owner = this;
  info->client_data = &scan_;
  libjpegs_start_ = hook(info).start_pass;
  hook(info).start_pass = start_pass;
  begin(info);
}

void Progressive::start_pass(j_decompress_ptr info) {
  Progressive& self = *static_cast<Scan*>(info->client_data)->owner;
  self.libjpegs_start_(info);  // validates the header of the scan
  self.begin(info);
}

void Progressive::begin(j_decompress_ptr info) {
  scan_.begin = info->Ss, scan_.end = info->Se, scan_.shift = info->Al, scan_.refines = info->Ah != 0;
  if (!scan_.begin && !scan_.refines) {
    for (int i = 0; i < info->comps_in_scan; ++i) {
      const int number = info->cur_comp_info[i]->dc_tbl_no;
      const JHUFF_TBL* table = info->dc_huff_tbl_ptrs[number];
      if (!table || !dc_[number].set(*table, false)) scan_.give_up(reinterpret_cast<j_common_ptr>(info));
      scan_.means_of[i] = &dc_[number];
    }
  } else if (scan_.begin) {
    const int number = info->cur_comp_info[0]->ac_tbl_no;
    const JHUFF_TBL* table = info->ac_huff_tbl_ptrs[number];
    if (!table || !ac_[number].set(*table, true)) scan_.give_up(reinterpret_cast<j_common_ptr>(info));
    scan_.codes = &ac_[number];
    scan_.blocks = &known_[info->cur_comp_info[0]->component_index];
  }
  std::memset(scan_.means, 0, sizeof scan_.means);
  scan_.empty = 0;
  scan_.block = 0;
  scan_.cursor.begin(info->restart_interval);
  hook(info).decode_mcu = HWY_DYNAMIC_DISPATCH(decode_mcu);
}

}  // namespace fastfeed
#endif
