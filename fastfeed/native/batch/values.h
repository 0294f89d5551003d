// Metadata columns: small ranges of files, several of a sample, many of a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "batch/samples.h"

namespace fastfeed {

class ColumnValues {
 public:
  // Reads each file's ranges in their order, neighbors together, and looks at the file once. What cannot be read, has
  // changed, or has another head than it should is left out, without a reason.
  explicit ColumnValues(const std::vector<Location>& locations);

  bool is_read(size_t i) const { return values_[i].data() != nullptr; }
  std::string_view operator[](size_t i) const { return values_[i]; }

 private:
  void read_file_of(const std::vector<Location>& locations, const size_t* first, const size_t* last);

  std::vector<std::unique_ptr<char[]>> memory_;
  std::vector<std::string_view> values_;
};

// Whether a text is one JSON number as RFC 8259 has it, blanks around it: a whole one is an integer.
enum class JsonNumber { none, whole, fraction };
JsonNumber json_number(std::string_view& text);  // without the blanks afterwards

}  // namespace fastfeed
