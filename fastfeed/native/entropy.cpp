#include "entropy.h"

#include <cstring>

// Variable shifts cost half with BMI2, which came with AVX2.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(FASTFEED_NO_CLONES)
#define FASTFEED_CLONES __attribute__((target_clones("arch=haswell", "default")))
#else
#define FASTFEED_CLONES
#endif
#define FASTFEED_INLINE inline __attribute__((always_inline))

namespace fastfeed {
namespace {

constexpr int kMean = 1 << 24;             // far beyond any picture's; damaged files add up to more
constexpr int kWhole = 0x80, kEnd = 64;  // in Codes::step: the value is there; zeros that end any block

// Coefficients in the order of the file -> their place in the block (ITU T.81, figure 5).
constexpr uint8_t kPlace[64] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
                                41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
                                30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

// The beginning of libjpeg's own structure, the same in every libjpeg since version 6.
struct Hook {
  void (*start_pass)(j_decompress_ptr);
  boolean (*decode_mcu)(j_decompress_ptr, JBLOCKROW*);
};

boolean decode_mcu(j_decompress_ptr info, JBLOCKROW* blocks) {
  return static_cast<Entropy*>(info->client_data)->decode(info, blocks);
}

// A value of `size` bits (1..16), as in F.2.2.1: those that begin with a 0 are negative.
FASTFEED_INLINE int extend(unsigned value, int size) {
  return int(value) - int((value >> (size - 1)) ? 0 : (1u << size) - 1);
}

struct Bits {
  uint64_t held;
  int count, invented;
  const uint8_t *at, *end;

  // At least 32 bits afterwards, more than any code with its value.
  FASTFEED_INLINE void fill() {
    if (count >= 32) return;
    if (end - at >= 8) {
      uint64_t next;
      std::memcpy(&next, at, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
      next = __builtin_bswap64(next);
#endif
      constexpr uint64_t ones = 0x0101010101010101u;
      if (!((~next - ones) & next & (ones << 7))) {  // no 0xFF among them
        held |= next >> count;
        at += (63 - count) >> 3;
        count |= 56;
        return;
      }
    }
    fill_slowly();
  }

  __attribute__((noinline)) void fill_slowly() {
    while (count <= 56) {
      uint64_t byte = 0;
      if (at < end && *at != 0xFF) {
        byte = *at++;
      } else if (end - at >= 2 && at[1] == 0) {
        byte = 0xFF, at += 2;
      } else {
        invented += 8;  // a marker, or the end
      }
      held |= byte << (56 - count);
      count += 8;
    }
  }

  FASTFEED_INLINE unsigned look(int n) const { return unsigned(held >> (64 - n)); }
  FASTFEED_INLINE void drop(int n) { held <<= n, count -= n; }
};

// How many zeros come before the next value, and the value; -1 for a code that does not exist.
FASTFEED_INLINE int next_value(Bits& bits, const Codes& codes, bool ac, int* value) {
  const int32_t step = codes.step[bits.look(kLook)];
  if (step & kWhole) {
    bits.drop(step & 0x7F);
    *value = step >> 16;
    return step >> 8 & 0xFF;
  }
  int length = step & 0x7F, zeros = step >> 8 & 0xFF, size = step >> 16;
  if (__builtin_expect(!length, 0)) {
    const Codes::Long found = codes.find(bits.look(16));
    if (!found.length) return -1;
    length = found.length;
    size = ac ? found.symbol & 15 : found.symbol;
    zeros = ac ? found.symbol >> 4 : 0;
    if (ac && !size && zeros != 15) zeros = kEnd;
  }
  bits.drop(length);
  *value = 0;
  if (size) {
    *value = extend(bits.look(size), size);
    bits.drop(size);
  }
  return zeros;
}

}  // namespace

bool Codes::set(const JHUFF_TBL& table, bool ac) {
  if (ready_ && ac == ac_ && !std::memcmp(bits_, table.bits, sizeof bits_) &&
      !std::memcmp(symbols_, table.huffval, sizeof symbols_))
    return true;  // most files of a kind have the same tables
  ready_ = false, ac_ = ac;
  std::memcpy(bits_, table.bits, sizeof bits_);
  std::memcpy(symbols_, table.huffval, sizeof symbols_);
  std::memset(step, 0, sizeof step);
  std::memset(leap, 0, sizeof leap);
  int code = 0, used = 0;
  for (int length = 1; length <= 16; ++length, code <<= 1) {
    offset_[length] = used - code;
    last_[length] = bits_[length] ? code + bits_[length] - 1 : -1;
    if (code + bits_[length] > 1 << length || used + bits_[length] > 256) return false;
    for (int i = 0; i < bits_[length]; ++i, ++code, ++used) {
      const int symbol = symbols_[used], size = ac ? symbol & 15 : symbol;
      const int zeros = !ac ? 0 : !size && symbol != 0xF0 ? kEnd : symbol >> 4;
      if (!ac && size > 11) return false;  // libjpeg has its own view of larger ones
      if (length > kLook) continue;
      const int free = kLook - length;
      for (int rest = 0; rest < 1 << free; ++rest) {
        int32_t& entry = step[code << free | rest];
        entry = length | zeros << 8 | size * 65536;
        if (size > free) continue;
        const int value = size ? extend(unsigned(rest) >> (free - size), size) : 0;
        entry = kWhole | (length + size) | zeros << 8 | value * 65536;
      }
    }
  }
  for (unsigned start = 0; ac && start < 1u << kLook; ++start) {
    int bits = 0, passed = 0;
    bool end = false;
    while (!end) {
      const int32_t entry = step[start << bits & ((1u << kLook) - 1)];
      if (!(entry & kWhole) || bits + (entry & 0x7F) > kLook) break;
      const int zeros = entry >> 8 & 0xFF;
      bits += entry & 0x7F;
      end = zeros == kEnd;
      if (!end) passed += zeros + 1;
    }
    leap[start] = uint32_t(bits | passed << 8 | end << 16);
  }
  return ready_ = true;
}

Codes::Long Codes::find(uint32_t next16) const {
  for (int length = 1; length <= 16; ++length) {
    const int code = int(next16 >> (16 - length));
    if (last_[length] >= code) return {symbols_[code + offset_[length]], length};
  }
  return {0, 0};
}

bool Entropy::attach(j_decompress_ptr info, JDIMENSION left, JDIMENSION width, GiveUp give_up) {
  count_ = info->blocks_in_MCU;
  for (int i = 0; i < count_; ++i) {
    const int component = info->MCU_membership[i];
    const jpeg_component_info& part = *info->cur_comp_info[component];
    const JHUFF_TBL *dc = info->dc_huff_tbl_ptrs[part.dc_tbl_no], *ac = info->ac_huff_tbl_ptrs[part.ac_tbl_no];
    if (!dc || !ac || !dc_[part.dc_tbl_no].set(*dc, false) || !ac_[part.ac_tbl_no].set(*ac, true)) return false;
#if JPEG_LIB_VERSION >= 70
    const bool flat = part.DCT_h_scaled_size == 1;
#else
    const bool flat = part.DCT_scaled_size == 1;
#endif
    blocks_[i] = {&dc_[part.dc_tbl_no], &ac_[part.ac_tbl_no], component, flat};
  }
  give_up_ = give_up;
  columns_ = info->MCUs_per_row;
  // as libjpeg counts them, and one more than it would look at
  unsigned pixels = info->comps_in_scan == 1 ? 8 : 8 * unsigned(info->max_h_samp_factor);
  pixels = pixels / info->scale_denom * info->scale_num;
  first_ = left / pixels, last_ = (left + width) / pixels + 1;
  column_ = 0;
  interval_ = to_restart_ = info->restart_interval;
  restarts_ = 0;
  std::memset(means_, 0, sizeof means_);
  held_ = 0;
  bits_ = invented_ = 0;
  info->client_data = this;
  reinterpret_cast<Hook*>(info->entropy)->decode_mcu = decode_mcu;
  return true;
}

void Entropy::restart(j_decompress_ptr info) {
  jpeg_source_mgr& source = *info->src;
  const uint8_t* at = source.next_input_byte;
  // nothing but padding may stand before the marker, which must be the next in turn
  if (bits_ - invented_ >= 8 || source.bytes_in_buffer < 2 || at[0] != 0xFF || at[1] != JPEG_RST0 + int(restarts_ & 7))
    give_up_(reinterpret_cast<j_common_ptr>(info));
  source.next_input_byte += 2;
  source.bytes_in_buffer -= 2;
  ++restarts_;
  to_restart_ = interval_;
  std::memset(means_, 0, sizeof means_);
  held_ = 0;
  bits_ = invented_ = 0;
}

FASTFEED_CLONES
boolean Entropy::decode(j_decompress_ptr info, JBLOCKROW* out) {
  if (interval_ && !to_restart_) restart(info);
  --to_restart_;
  jpeg_source_mgr& source = *info->src;
  Bits bits{held_, bits_, invented_, source.next_input_byte, source.next_input_byte + source.bytes_in_buffer};
  const bool shown = out && column_ >= first_ && column_ <= last_;
  if (++column_ == columns_) column_ = 0;
  bool good = true;
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
          good &= zeros == kEnd;
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
        good &= zeros == kEnd;
        break;
      }
      k += zeros + 1;
      good &= k <= 64;
    }
  }
  if (!good || bits.count < bits.invented) give_up_(reinterpret_cast<j_common_ptr>(info));
  held_ = bits.held, bits_ = bits.count, invented_ = bits.invented;
  source.next_input_byte = bits.at;
  source.bytes_in_buffer = size_t(bits.end - bits.at);
  return TRUE;
}

}  // namespace fastfeed
