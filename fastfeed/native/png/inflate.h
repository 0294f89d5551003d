// Decompresses zlib streams piece by piece, as PNGs hold them (RFC 1950, 1951).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace fastfeed {

struct Chunk {
  const uint8_t *at, *end;
};

// One stream at a time; memory stays for the next. Nothing here throws for what a stream contains.
class Inflate {
 public:
  // `pieces`: the stream, one piece behind another; they and what they point at stay until the last call. False where it
  // is no zlib stream.
  bool open(const std::vector<Chunk>* pieces);
  // The next `size` bytes, at most kMost, valid until the next call; null where the stream is damaged or ends.
  const uint8_t* take(size_t size);
  // After the last byte: whether the stream ends here, with the checksum of all that was taken.
  bool ends();

  static constexpr size_t kMost = size_t(1) << 22;

 private:
  static constexpr int kLiteralBits = 11, kDistanceBits = 8, kLengthBits = 7;
  static constexpr size_t kHistory = 32768, kLongest = 258, kAtOnce = size_t(1) << 18;
  enum class State : uint8_t { header, stored, codes, end, damaged };

  void refill();
  uint32_t bits(int count);
  bool begin_block();
  bool read_codes();
  bool fixed_codes();
  bool copy_stored(size_t until);
  bool decode(size_t until);
  void make_room(size_t size);
  bool overrun() const { return zeros_ > held_; }

  // of the stream
  const std::vector<Chunk>* pieces_ = nullptr;
  size_t piece_ = 0;
  const uint8_t *in_ = nullptr, *in_end_ = nullptr;
  uint64_t buffer_ = 0;
  int held_ = 0, zeros_ = 0;  // bits in buffer_; bits that were added behind the end of the stream
  State state_ = State::damaged;
  bool last_ = false;
  uint32_t stored_ = 0;  // bytes left of a stored block
  // of the result: what was taken before taken_ is history
  std::unique_ptr<uint8_t[]> out_;
  size_t capacity_ = 0, made_ = 0, taken_ = 0, summed_ = 0;
  uint32_t sum_ = 1;
  std::vector<uint32_t> literals_, distances_;
};

}  // namespace fastfeed
