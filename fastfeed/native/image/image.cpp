#include "image/image.h"

#include <algorithm>

namespace fastfeed {
namespace {

constexpr size_t kAlign = 64, kBeyond = 64;

uint8_t* aligned(uint8_t* at) { return at + (kAlign - reinterpret_cast<uintptr_t>(at) % kAlign) % kAlign; }

}  // namespace

uint8_t* Scratch::memory(size_t count) {
  const size_t need = (count + kAlign - 1) / kAlign * kAlign + kBeyond;
  while (block_ < blocks_.size() && used_ + need > blocks_[block_].size) ++block_, used_ = 0;
  if (block_ == blocks_.size()) {
    const size_t size = std::max(need, kBlock);
    blocks_.push_back({std::unique_ptr<uint8_t[]>(new uint8_t[size + kAlign]), size});
    used_ = 0;
  }
  uint8_t* at = aligned(blocks_[block_].memory.get()) + used_;
  used_ += need;
  return at;
}

void Scratch::rewind(size_t block, size_t used) {
  block_ = block, used_ = used;
  if (block || used) return;
  size_t kept = 0;
  for (const Block& each : blocks_) kept += each.size;
  for (; kept > kKept; blocks_.pop_back()) kept -= blocks_.back().size;
}

}  // namespace fastfeed
