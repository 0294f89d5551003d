// Reads the bits of a JPEG scan. Used only by the Huffman decoders.
#pragma once

#include <cstdint>
#include <cstring>

#include "jpeg/codes.h"

#define FASTFEED_INLINE inline __attribute__((always_inline))

namespace fastfeed {

constexpr int kMean = 1 << 24;            // no image's mean comes near; damaged files can exceed it
constexpr int kWhole = 0x80, kEnd = 64;  // in Codes::step: the value is included; so many zeros end any block

// Coefficients in the order of the file -> their position in the block (ITU T.81, figure 5).
constexpr uint8_t kPlace[64] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
                                41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
                                30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

// The same for places that a damaged block, or the end of a sound one, leads to behind it: the last coefficient.
struct Places {
  uint8_t at[2 * 64];
  constexpr Places() : at() {
    for (int k = 0; k < 2 * 64; ++k) at[k] = kPlace[k < 64 ? k : 63];
  }
};
constexpr Places kPlaces;

// The beginnings of libjpeg's own structures, the same in every libjpeg since version 6: of its entropy decoder, of its
// inverse transforms, and of its reader of markers.
struct Hook {
  void (*start_pass)(j_decompress_ptr);
  boolean (*decode_mcu)(j_decompress_ptr, JBLOCKROW*);
};
struct Transform {
  void (*start_pass)(j_decompress_ptr);
};
struct MarkerReader {
  void (*reset)(j_decompress_ptr);
  int (*read_markers)(j_decompress_ptr);
  boolean (*read_restart)(j_decompress_ptr);
  boolean begun, framed;
  int next_restart;
  unsigned discarded;  // bytes that belong to no marker and to no block
};

using GiveUp = void (*)(j_common_ptr);  // leaves the image to libjpeg; does not return

// Pixels to which eight of a component are shrunk.
inline int shrunk_size(const jpeg_component_info& part) {
#if JPEG_LIB_VERSION >= 70
  return part.DCT_h_scaled_size;
#else
  return part.DCT_scaled_size;
#endif
}

inline void set_shrunk_size(jpeg_component_info& part, int size) {
#if JPEG_LIB_VERSION >= 70
  part.DCT_h_scaled_size = part.DCT_v_scaled_size = size;
#else
  part.DCT_scaled_size = size;
#endif
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

// How many zeros come before the next value, and the value. kEnd + n: a symbol 0xn0 that ends a block, or 2^n and more
// blocks of a progressive scan. -1: no such code.
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
    if (ac && !size && zeros != 15) zeros += kEnd;
  }
  bits.drop(length);
  *value = 0;
  if (size) {
    *value = extend(bits.look(size), size);
    bits.drop(size);
  }
  return zeros;
}

// Read position in a scan between two calls.
class Cursor {
 public:
  void begin(unsigned restart_interval) {
    *this = Cursor();
    interval_ = to_restart_ = restart_interval;
  }

  // How many whole restart intervals the next units are, `units` at most; 0 within an interval.
  size_t intervals_in(size_t units) const {
    return interval_ && (to_restart_ == 0 || (to_restart_ == interval_ && !restarts_)) ? units / interval_ : 0;
  }

  // Passes so many intervals, and the marker behind each. False: a marker is missing, or out of sequence.
  bool leap(j_decompress_ptr info, size_t intervals) {
    jpeg_source_mgr& source = *info->src;
    if (to_restart_ == 0 && unit(info) < 0) return false;
    const uint8_t *at = source.next_input_byte, *const end = at + source.bytes_in_buffer;
    for (; intervals; --intervals) {
      const uint8_t marker = uint8_t(JPEG_RST0 + int(restarts_++ & 7));
      for (;; at += 2) {
        at = end - at < 2 ? nullptr : static_cast<const uint8_t*>(std::memchr(at, 0xFF, size_t(end - at - 1)));
        if (!at) return false;
        if (at[1] == marker) break;
        if (at[1] != 0) return false;
      }
      at += 2;
    }
    source.next_input_byte = at;
    source.bytes_in_buffer = size_t(end - at);
    to_restart_ = interval_;
    held_ = 0;
    count_ = invented_ = 0;
    return true;
  }

  // Call before each unit. 1: a restart marker has been passed, predictions are reset. -1: it is missing, or
  // out of sequence.
  int unit(j_decompress_ptr info) {
    if (!interval_) return 0;
    if (to_restart_--) return 0;
    jpeg_source_mgr& source = *info->src;
    const uint8_t* at = source.next_input_byte;
    if (count_ - invented_ >= 8 || source.bytes_in_buffer < 2 || at[0] != 0xFF ||
        at[1] != JPEG_RST0 + int(restarts_++ & 7))
      return -1;  // only padding may come before it
    source.next_input_byte += 2;
    source.bytes_in_buffer -= 2;
    to_restart_ = interval_ - 1;
    held_ = 0;
    count_ = invented_ = 0;
    return 1;
  }

  FASTFEED_INLINE Bits open(j_decompress_ptr info) const {
    const jpeg_source_mgr& source = *info->src;
    return {held_, count_, invented_, source.next_input_byte, source.next_input_byte + source.bytes_in_buffer};
  }

  // False: more bits were read than there are.
  FASTFEED_INLINE bool close(j_decompress_ptr info, const Bits& bits) {
    held_ = bits.held, count_ = bits.count, invented_ = bits.invented;
    info->src->next_input_byte = bits.at;
    info->src->bytes_in_buffer = size_t(bits.end - bits.at);
    return bits.count >= bits.invented;
  }

 private:
  uint64_t held_ = 0;              // the next bits, from the top
  int count_ = 0, invented_ = 0;   // how many, and how many of them are zeros after the data
  unsigned interval_ = 0, to_restart_ = 0, restarts_ = 0;
};

}  // namespace fastfeed
