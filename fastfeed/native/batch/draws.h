// Random numbers and permutations that are looked up, not generated; sampling/rng.py and sampling/permute.py define them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastfeed {

// `count` numbers in [0, 1) for each id, row by row: Philox4x32-10, two numbers of 53 bits per block.
void uniform(uint64_t seed, uint32_t epoch, const int64_t* ids, size_t n, uint32_t slot, size_t count, double* out);

// One number for all values, or one for each.
struct PerValue {
  const uint64_t* numbers;
  size_t step;  // 0: one for all; 1
  uint64_t operator[](size_t i) const { return numbers[i * step]; }
};

constexpr int kRounds = 8;
struct Permutation {
  PerValue size, a, b;     // of [0, size), as a Feistel network over two sides with size <= a * b
  PerValue keys[kRounds];  // of each round
};

// Where each value goes under its permutation; values beyond `size` pass through the network again. False where a value
// is not in [0, size).
bool permute(const int64_t* values, size_t n, const Permutation& permutation, bool inverse, int64_t* out);

}  // namespace fastfeed
