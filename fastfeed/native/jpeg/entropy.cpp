// What takes variable shifts costs half with BMI2, which Highway's AVX2 includes.
#include "jpeg/entropy.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "jpeg/entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "jpeg/bits.h"

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {

boolean decode_mcu(j_decompress_ptr info, JBLOCKROW* out) {
  auto& scan = *static_cast<Entropy::Scan*>(info->client_data);
  if (scan.above && scan.leap(info, out)) return TRUE;
  const int restart = scan.cursor.unit(info);
  if (restart) std::memset(scan.means, 0, sizeof scan.means);
  bool good = restart >= 0;
  Bits bits = scan.cursor.open(info);
  const bool shown = out && scan.column >= scan.first && scan.column <= scan.last;
  if (++scan.column == scan.columns) scan.column = 0;
  for (int i = 0; i < scan.count; ++i) {
    const Entropy::Block& block = scan.blocks[i];
    int value = 0;
    bits.fill();
    good &= next_value(bits, *block.dc, false, &value) >= 0;
    const int mean = scan.means[block.component] += value;
    good &= mean > -kMean && mean < kMean;
    if (shown && !block.flat) {
      JCOEF* coefficients = *out[i];
      coefficients[0] = JCOEF(mean);
      int k = 1;
      while (k < 64) {
        bits.fill();
        const Codes::Pair pair = block.ac->pair[bits.look(kLook)];
        // Both are stored, without a jump that depends on how many there are; but nothing ends a block that is full.
        if (pair.bits && k + pair.at[0] < 63) {
          coefficients[kPlaces.at[k + pair.at[0]]] = pair.value[0];
          coefficients[kPlaces.at[k + pair.at[1]]] = pair.value[1];
          bits.drop(pair.bits);
          k += pair.passed;
          continue;
        }
        const int zeros = next_value(bits, *block.ac, true, &value);
        if (zeros & ~15) {
          good &= zeros >= kEnd;
          k = kEnded;
          break;
        }
        if ((k += zeros) < 64) coefficients[kPlace[k]] = JCOEF(value);
        ++k;
      }
      good &= k == 64 || k >= kEnded;
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
  good &= scan.cursor.close(info, bits);
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

constexpr unsigned kAround = 2;  // rows of MCUs that libjpeg may decode above the first that it shows

}  // namespace

// Whether this MCU is one that is not looked at: libjpeg asks for it, and for those after it, without a place for them.
bool Entropy::Scan::leap(j_decompress_ptr info, const JBLOCKROW* out) {
  const auto common = reinterpret_cast<j_common_ptr>(info);
  if (!leapt && !out) {
    if (const size_t intervals = cursor.intervals_in(above)) {
      if (!cursor.leap(info, intervals)) give_up(common);
      leapt = intervals * info->restart_interval;
      std::memset(means, 0, sizeof means);
    }
  }
  --above;
  if (!leapt) return false;
  if (out) give_up(common);  // not as expected
  --leapt;
  if (++column == columns) column = 0;
  return true;
}

bool Entropy::attach(j_decompress_ptr info, JDIMENSION top, JDIMENSION left, JDIMENSION width, GiveUp give_up) {
  scan_.count = info->blocks_in_MCU;
  for (int i = 0; i < scan_.count; ++i) {
    const int component = info->MCU_membership[i];
    const jpeg_component_info& part = *info->cur_comp_info[component];
    const JHUFF_TBL *dc = info->dc_huff_tbl_ptrs[part.dc_tbl_no], *ac = info->ac_huff_tbl_ptrs[part.ac_tbl_no];
    if (!dc || !ac || !dc_[part.dc_tbl_no].set(*dc, false) || !ac_[part.ac_tbl_no].set(*ac, true)) return false;
    scan_.blocks[i] = {&dc_[part.dc_tbl_no], &ac_[part.ac_tbl_no], component, shrunk_size(part) == 1};
  }
  scan_.give_up = give_up;
  scan_.columns = info->MCUs_per_row;
  // as libjpeg counts them, and one more than it would look at
  unsigned pixels = info->comps_in_scan == 1 ? 8 : 8 * unsigned(info->max_h_samp_factor);
  pixels = pixels / info->scale_denom * info->scale_num;
  unsigned rows = info->comps_in_scan == 1 ? 8 : 8 * unsigned(info->max_v_samp_factor);
  rows = rows / info->scale_denom * info->scale_num;
  scan_.above = top / rows > kAround ? size_t(top / rows - kAround) * scan_.columns : 0;
  scan_.leapt = 0;
  scan_.first = left / pixels, scan_.last = (left + width) / pixels + 1;
  scan_.column = 0;
  std::memset(scan_.means, 0, sizeof scan_.means);
  scan_.cursor.begin(info->restart_interval);
  info->client_data = &scan_;
  reinterpret_cast<Hook*>(info->entropy)->decode_mcu = HWY_DYNAMIC_DISPATCH(decode_mcu);
  return true;
}

}  // namespace fastfeed
#endif
