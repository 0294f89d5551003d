#include "batch/draws.h"

namespace fastfeed {
namespace {

struct Block {
  uint32_t word[4];
};

// Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC11).
inline Block philox(Block counter, uint64_t key) {
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const uint64_t p0 = uint64_t(counter.word[0]) * 0xD2511F53u, p1 = uint64_t(counter.word[2]) * 0xCD9E8D57u;
    counter = {{uint32_t(p1 >> 32) ^ counter.word[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ counter.word[3] ^ k1,
                uint32_t(p0)}};
  }
  return counter;
}

inline double number(uint32_t high, uint32_t low) {
  return (double(high >> 5) * 67108864.0 + double(low >> 6)) / 9007199254740992.0;
}

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;

// SplitMix64's finalizer (Steele, Lea, Flood 2014).
inline uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

// One pass of a value, under the permutation of its row.
inline uint64_t network(uint64_t value, size_t row, const Permutation& p, bool inverse) {
  const uint64_t a = p.a[row], b = p.b[row];
  uint64_t side[2] = {value / b, value % b};  // in [0, a), in [0, b)
  const uint64_t modulus[2] = {a, b};
  for (int k = 0; k < kRounds; ++k) {
    const int i = inverse ? kRounds - 1 - k : k, target = i % 2;
    uint64_t x = mixed(side[1 - target] * kGolden + p.keys[i][row]) % modulus[target];
    if (inverse) x = modulus[target] - x;
    side[target] += x;
    if (side[target] >= modulus[target]) side[target] -= modulus[target];
  }
  return side[0] * b + side[1];
}

}  // namespace

void uniform(uint64_t seed, uint32_t epoch, const int64_t* ids, size_t n, uint32_t slot, size_t count, double* out) {
  for (size_t i = 0; i < n; ++i) {
    const uint64_t id = uint64_t(ids[i]);
    for (size_t k = 0; k < count; k += 2) {
      const Block block = philox({{uint32_t(id), uint32_t(id >> 32), epoch, slot << 16 | uint32_t(k / 2)}}, seed);
      *out++ = number(block.word[0], block.word[1]);
      if (k + 1 < count) *out++ = number(block.word[2], block.word[3]);
    }
  }
}

bool permute(const int64_t* values, size_t n, const Permutation& permutation, bool inverse, int64_t* out) {
  for (size_t i = 0; i < n; ++i) {
    const uint64_t size = permutation.size[i];
    uint64_t value = uint64_t(values[i]);
    if (value >= size) return false;
    do value = network(value, i, permutation, inverse);
    while (value >= size);
    out[i] = int64_t(value);
  }
  return true;
}

}  // namespace fastfeed
