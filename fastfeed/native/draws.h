// Random numbers and permutations that are looked up, not generated; sampling/rng.py and sampling/permute.py define them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastfeed {

// `count` numbers in [0, 1) for each id, row by row: Philox4x32-10, two numbers of 53 bits per block.
void uniform(uint64_t seed, uint32_t epoch, const int64_t* ids, size_t n, uint32_t slot, size_t count, double* out);

// Where each value goes under a permutation of [0, size): a Feistel network over two sides with size <= a * b, whose
// values beyond `size` pass through it again. keys: one per round. False where a value is not in [0, size).
constexpr int kRounds = 8;
bool permute(const int64_t* values, size_t n, uint64_t size, uint64_t a, uint64_t b, const uint64_t* keys, bool inverse,
             int64_t* out);

}  // namespace fastfeed
