#include "png/inflate.h"

#include <algorithm>
#include <cstring>

#include "system/checksums.h"
#include "png/deflate_codes.h"
#include "png/matches.h"

namespace fastfeed {
bool Inflate::open(const std::vector<Chunk>* pieces) {
  pieces_ = pieces, piece_ = 0;
  in_ = in_end_ = nullptr;
  buffer_ = 0, held_ = zeros_ = 0;
  last_ = false, stored_ = 0;
  made_ = taken_ = summed_ = 0, sum_ = 1;
  state_ = State::header;
  const uint32_t method = bits(8), flags = bits(8);
  const bool known = (method & 15) == 8 && method >> 4 <= 7 && (method << 8 | flags) % 31 == 0 && !(flags & 32);
  if (!known || overrun()) state_ = State::damaged;
  return state_ == State::header;
}

// To at least 56 bits, with zeros behind the end.
void Inflate::refill() {
  while (held_ <= 56) {
    if (in_ != in_end_) {
      buffer_ |= uint64_t(*in_++) << held_;
    } else if (piece_ < pieces_->size()) {
      in_ = (*pieces_)[piece_].at, in_end_ = (*pieces_)[piece_].end;
      ++piece_;
      continue;
    } else {
      zeros_ += 8;
    }
    held_ += 8;
  }
}

uint32_t Inflate::bits(int count) {
  if (held_ < count) refill();
  const uint32_t value = uint32_t(buffer_) & ((1u << count) - 1);
  buffer_ >>= count, held_ -= count;
  return value;
}

bool Inflate::fixed_codes() {
  uint8_t lengths[288];
  for (int i = 0; i < 288; ++i) lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
  if (!make_table(literals_, kLiteralBits, lengths, 288, literal_entry)) return false;
  std::fill_n(lengths, 32, uint8_t(5));
  return make_table(distances_, kDistanceBits, lengths, 32, distance_entry);
}

bool Inflate::read_codes() {
  static constexpr uint8_t kOrder[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
  const int literals = int(bits(5)) + 257, distances = int(bits(5)) + 1, given = int(bits(4)) + 4;
  if (literals > 286 || distances > 30) return false;
  uint8_t lengths[320] = {};
  for (int i = 0; i < given; ++i) lengths[kOrder[i]] = uint8_t(bits(3));
  if (!make_table(distances_, kLengthBits, lengths, 19, length_entry)) return false;
  std::memset(lengths, 0, sizeof lengths);
  for (int i = 0; i < literals + distances;) {
    if (held_ < 16) refill();
    const uint32_t entry = distances_[buffer_ & ((1u << kLengthBits) - 1)];
    if (entry & kInvalid) return false;
    buffer_ >>= entry & 31, held_ -= int(entry & 31);
    const int symbol = int(entry >> 16);
    if (symbol < 16) {
      lengths[i++] = uint8_t(symbol);
      continue;
    }
    if (symbol == 16 && i == 0) return false;
    const uint8_t value = symbol == 16 ? lengths[i - 1] : 0;
    const int times = symbol == 16 ? 3 + int(bits(2)) : symbol == 17 ? 3 + int(bits(3)) : 11 + int(bits(7));
    if (times > literals + distances - i) return false;
    std::fill_n(lengths + i, times, value);
    i += times;
  }
  if (!lengths[256]) return false;
  return make_table(literals_, kLiteralBits, lengths, literals, literal_entry) &&
         make_table(distances_, kDistanceBits, lengths + literals, distances, distance_entry);
}

bool Inflate::begin_block() {
  if (last_) {
    state_ = State::end;
    return true;
  }
  last_ = bits(1);
  const uint32_t kind = bits(2);
  if (kind == 0) {
    bits(held_ % 8);
    const uint32_t size = bits(16);
    if ((size ^ bits(16)) != 0xFFFF) return false;
    stored_ = size;
    state_ = State::stored;
    return !overrun();
  }
  if (kind == 3 || !(kind == 1 ? fixed_codes() : read_codes())) return false;
  state_ = State::codes;
  return !overrun();
}

bool Inflate::copy_stored(size_t until) {
  size_t left = std::min(size_t(stored_), until - made_);
  stored_ -= uint32_t(left);
  for (; left && held_; --left) out_[made_++] = uint8_t(bits(8));
  if (overrun()) return false;
  if (!held_) buffer_ = 0;  // what lies above its bits will be read once more
  while (left) {
    if (in_ == in_end_) {
      if (piece_ == pieces_->size()) return false;
      in_ = (*pieces_)[piece_].at, in_end_ = (*pieces_)[piece_].end;
      ++piece_;
    }
    const size_t count = std::min(left, size_t(in_end_ - in_));
    std::memcpy(out_.get() + made_, in_, count);
    in_ += count, made_ += count, left -= count;
  }
  if (!stored_) state_ = State::header;
  return true;
}

bool Inflate::decode(size_t until) {
  uint8_t *const begin = out_.get(), *const stop = begin + until, *out = begin + made_;
  const uint32_t *const literals = literals_.data(), *const distances = distances_.data();
  constexpr uint64_t kLiteralMask = (1u << kLiteralBits) - 1, kDistanceMask = (1u << kDistanceBits) - 1;
  uint64_t buffer = buffer_;
  int held = held_;
  const uint8_t* in = in_;
  bool sound = true;
  const auto fill = [&] {
    if (in_end_ - in >= 8) {
      uint64_t word;
      std::memcpy(&word, in, 8);
      buffer |= word << held;
      in += (63 - held) >> 3;
      held |= 56;
      return;
    }
    buffer_ = buffer, held_ = held, in_ = in;
    refill();
    buffer = buffer_, held = held_, in = in_;
  };
  const auto drop = [&](uint32_t entry) {
    buffer >>= entry & 31;
    held -= int(entry & 31);
  };
  const auto look = [&] { return literals[buffer & kLiteralMask]; };
  const auto extra = [&buffer](uint32_t of) {
    return size_t((buffer & ((uint64_t(1) << (of & 31)) - 1)) >> (of >> 8 & 15));
  };
  fill();
  uint32_t entry = look();  // of the next symbol; there are bits for it, its distance, and all extra bits
  while (out < stop) {
    if (entry & kLiteral) {  // up to three before bits run out
      drop(entry);
      *out++ = uint8_t(entry >> 16);
      entry = look();
      if (entry & kLiteral) {
        drop(entry);
        *out++ = uint8_t(entry >> 16);
        entry = look();
        if (entry & kLiteral) {
          drop(entry);
          *out++ = uint8_t(entry >> 16);
          entry = look();
        }
      }
      fill();
      if (entry & kLiteral) continue;
    }
    if (entry & kFurther) {
      const uint64_t at = buffer >> kLiteralBits & ((uint64_t(1) << (entry & 31)) - 1);
      entry = literals[(entry >> 16) + at];
      if (entry & kLiteral) {
        drop(entry);
        *out++ = uint8_t(entry >> 16);
        fill();
        entry = look();
        continue;
      }
    }
    if (entry & (kEnd | kInvalid)) {
      sound = entry & kEnd;
      drop(entry);
      state_ = State::header;
      break;
    }
    const size_t length = (entry >> 16) + extra(entry);
    drop(entry);
    entry = distances[buffer & kDistanceMask];
    if (entry & kFurther) {
      const uint64_t at = buffer >> kDistanceBits & ((uint64_t(1) << (entry & 31)) - 1);
      entry = distances[(entry >> 16) + at];
    }
    const size_t distance = (entry >> 16) + extra(entry);
    if (entry & kInvalid || distance > size_t(out - begin)) {
      sound = false;
      break;
    }
    drop(entry);
    fill();
    entry = look();  // waits for nothing that the copy does
    repeat(out, distance, length);
    out += length;
  }
  buffer_ = buffer, held_ = held, in_ = in;
  made_ = size_t(out - begin);
  return sound && !overrun();
}

// Memory for `size` more bytes behind taken_, and what the longest match writes beyond.
void Inflate::make_room(size_t size) {
  sum_ = adler32(sum_, out_.get() + summed_, taken_ - summed_);
  const size_t kept = std::min(taken_, kHistory), begin = taken_ - kept, count = made_ - begin;
  const size_t need = kHistory + std::max(size, kAtOnce) + kLongest + kBeyond;
  if (capacity_ < need) {
    std::unique_ptr<uint8_t[]> larger(new uint8_t[need]);
    if (count) std::memcpy(larger.get(), out_.get() + begin, count);
    out_ = std::move(larger);
    capacity_ = need;
  } else if (begin) {
    std::memmove(out_.get(), out_.get() + begin, count);
  }
  made_ = count;
  taken_ = summed_ = kept;
}

const uint8_t* Inflate::take(size_t size) {
  if (size > kMost || state_ == State::damaged) return nullptr;
  if (made_ - taken_ < size) {
    make_room(size);
    const size_t until = std::min(capacity_ - kLongest - 16, taken_ + std::max(size, kAtOnce));
    while (made_ < until && state_ != State::end) {
      const bool sound = state_ == State::header ? begin_block()
                         : state_ == State::stored ? copy_stored(until)
                         : state_ == State::codes  ? decode(until)
                                                   : false;
      if (!sound) state_ = State::damaged;
      if (state_ == State::damaged) break;
    }
    if (state_ == State::damaged || made_ - taken_ < size) return nullptr;
  }
  const uint8_t* result = out_.get() + taken_;
  taken_ += size;
  return result;
}

bool Inflate::ends() {
  if (!out_) make_room(0);
  while (state_ != State::end && state_ != State::damaged && made_ == taken_) {
    const size_t until = made_ + 1;
    if (until + kLongest + kBeyond > capacity_) make_room(1);
    const bool sound = state_ == State::header ? begin_block()
                       : state_ == State::stored ? copy_stored(made_ + 1)
                                                 : decode(made_ + 1);
    if (!sound) state_ = State::damaged;
  }
  if (state_ != State::end || made_ != taken_) return false;
  sum_ = adler32(sum_, out_.get() + summed_, taken_ - summed_);
  summed_ = taken_;
  bits(held_ % 8);
  uint32_t expected = 0;
  for (int i = 0; i < 4; ++i) expected = expected << 8 | bits(8);
  return !overrun() && (!kVerified || expected == sum_);
}

}  // namespace fastfeed
