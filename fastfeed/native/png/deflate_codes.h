// Tables for the Huffman codes of deflate streams (RFC 1951).
#pragma once

#include <cstdint>
#include <vector>

namespace fastfeed {

// An entry of a table: bits 0-4 how many bits of input it takes, extra bits included; 8-11 how many of them the code has;
// then flags; from bit 16 on a literal, the least length or distance, or where the table of longer codes begins, whose
// index has as many bits as stand in 0-4.
constexpr uint32_t kLiteral = 1u << 31, kFurther = 1u << 15, kEnd = 1u << 14, kInvalid = 1u << 13;

uint32_t literal_entry(int symbol);
uint32_t distance_entry(int symbol);
uint32_t length_entry(int symbol);  // of the code that says how long the others are

// `lengths`: of each symbol's code, 0 to 15 bits, 0 where it has none. The first 2^bits entries are for the next `bits` of
// input. False where the lengths are of no complete code; one with a single entry, or none, may be incomplete (a distance
// that does not occur), and its missing entries are invalid.
bool make_table(std::vector<uint32_t>& table, int bits, const uint8_t* lengths, int count, uint32_t (*entry)(int));

}  // namespace fastfeed
