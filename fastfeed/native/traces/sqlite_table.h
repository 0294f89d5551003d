// Integer columns of a table of an SQLite database, read from its pages: a tenth of the time of a query.
#pragma once

#include <cstdint>
#include <vector>

namespace fastfeed {

// Columns of the table whose b-tree begins at page `root` (from 1), in the order of its rows; NULL is -1. `fd` is the
// open file, `columns` are places in a record, counted from 0.
// Throws std::runtime_error where SQLite itself has to look: a page that is damaged, a value that is no integer, a row
// that lacks a column or has it on another page, a table without row ids.
// The format: https://sqlite.org/fileformat2.html, sections 1.3, 1.6 and 2.1.
std::vector<std::vector<int64_t>> integer_columns(int fd, uint32_t root, const std::vector<uint32_t>& columns);

}  // namespace fastfeed
