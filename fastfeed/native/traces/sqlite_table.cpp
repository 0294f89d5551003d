#include "traces/sqlite_table.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "system/system.h"

namespace fastfeed {
namespace {

constexpr int kMaxDepth = 20;  // of a b-tree; SQLite's own limit
constexpr uint8_t kInterior = 5, kLeaf = 13;

[[noreturn]] void refuse(const char* reason) { throw std::runtime_error(reason); }

uint32_t big16(const uint8_t* at) { return uint32_t(at[0]) << 8 | at[1]; }
uint32_t big32(const uint8_t* at) { return big16(at) << 16 | big16(at + 2); }

// A variable-length integer of up to nine bytes, to behind it.
uint64_t varint(const uint8_t*& at, const uint8_t* end) {
  uint64_t value = 0;
  for (int i = 0; i < 9; ++i) {
    if (at == end) refuse("a number goes beyond its page");
    const uint8_t byte = *at++;
    if (i == 8) return value << 8 | byte;
    value = value << 7 | (byte & 127);
    if (byte < 128) break;
  }
  return value;
}

constexpr uint8_t kSizes[10] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0};  // bytes of a value, by its serial type

uint64_t size_of(uint64_t type) {
  if (type < 10) return kSizes[type];
  if (type < 12) refuse("a type that SQLite keeps for itself");
  return (type - 12) / 2;
}

int64_t integer(uint64_t type, const uint8_t* at) {
  if (type == 0) return -1;  // NULL
  if (type == 8 || type == 9) return int64_t(type - 8);
  if (type > 6) refuse("a value that is no integer");
  uint64_t value = at[0] & 128 ? ~uint64_t(0) : 0;
  for (int i = 0; i < kSizes[type]; ++i) value = value << 8 | at[i];
  return int64_t(value);
}

class Reader {
 public:
  Reader(int fd, const std::vector<uint32_t>& columns) : fd_(fd), columns_(columns), values_(columns.size()) {
    uint8_t head[100];
    FileStatus status;
    if (!file_status(fd, status) || !read_file(fd, head, sizeof head, 0)) refuse("no header");
    page_size_ = big16(head + 16) == 1 ? 65536 : big16(head + 16);
    if (page_size_ < 512 || page_size_ & (page_size_ - 1) || head[20] > page_size_ - 480) refuse("no size of a page");
    usable_ = page_size_ - head[20];
    left_ = uint64_t(status.size) / page_size_;
    const auto most = columns.empty() ? 0 : *std::max_element(columns.begin(), columns.end()) + 1;
    if (most > 32767) refuse("no table has so many columns");
    types_.resize(most);
    at_.resize(most);
  }

  void walk(uint32_t number, int depth) {
    if (!left_-- || depth > kMaxDepth) refuse("pages that point at each other");
    std::vector<uint8_t> page(page_size_);
    if (number < 2 || !read_file(fd_, page.data(), page_size_, int64_t(number - 1) * page_size_))
      refuse("a page that is not there");
    const uint32_t cells = big16(page.data() + 3), header = page[0] == kInterior ? 12 : 8;
    if (page[0] != kInterior && page[0] != kLeaf) refuse("a page of another kind");
    if (header + 2 * cells > usable_) refuse("more cells than a page holds");
    for (uint32_t i = 0; i < cells; ++i) {
      const uint32_t at = big16(page.data() + header + 2 * i);
      if (at < header + 2 * cells || at + 4 > usable_) refuse("a cell beyond its page");
      if (page[0] == kLeaf)
        row(page.data() + at, page.data() + usable_);
      else
        walk(big32(page.data() + at), depth + 1);
    }
    if (page[0] == kInterior) walk(big32(page.data() + 8), depth + 1);
  }

  std::vector<std::vector<int64_t>> take() { return std::move(values_); }

 private:
  void row(const uint8_t* at, const uint8_t* page_end) {
    const uint64_t size = varint(at, page_end);
    const int64_t id = int64_t(varint(at, page_end));
    if (!first_ && id <= last_id_) refuse("rows that are out of order");
    first_ = false;
    last_id_ = id;
    const uint64_t here = std::min<uint64_t>(local(size), uint64_t(page_end - at));
    const uint8_t *const record = at, *const end = record + here;
    const uint64_t header = varint(at, end);
    if (header > here) refuse("a header on another page");
    const uint8_t* const header_end = record + header;
    uint64_t offset = header;
    for (size_t i = 0; i < types_.size(); ++i) {
      if (at >= header_end) refuse("a row without this column");
      types_[i] = *at < 128 ? *at++ : varint(at, header_end);
      at_[i] = offset;
      offset += size_of(types_[i]);
      if (offset > here && i + 1 < types_.size()) refuse("a value on another page");
    }
    for (size_t i = 0; i < columns_.size(); ++i) {
      const uint32_t column = columns_[i];
      if (types_[column] > 9) refuse("a value that is no integer");
      if (at_[column] + kSizes[types_[column]] > here) refuse("a value on another page");
      values_[i].push_back(integer(types_[column], record + at_[column]));
    }
  }

  // How many bytes of a record of this size its own page holds.
  uint64_t local(uint64_t size) const {
    const uint64_t most = usable_ - 35, least = (usable_ - 12) * 32 / 255 - 23;
    if (size <= most) return size;
    const uint64_t wanted = least + (size - least) % (usable_ - 4);
    return wanted <= most ? wanted : least;
  }

  const int fd_;
  const std::vector<uint32_t>& columns_;
  std::vector<std::vector<int64_t>> values_;
  std::vector<uint64_t> types_, at_;  // of the columns of a row, up to the last that is asked for
  uint32_t page_size_ = 0, usable_ = 0;
  uint64_t left_ = 0;  // pages that may still be visited
  int64_t last_id_ = 0;
  bool first_ = true;
};

}  // namespace

std::vector<std::vector<int64_t>> integer_columns(int fd, uint32_t root, const std::vector<uint32_t>& columns) {
  Reader reader(fd, columns);
  reader.walk(root, 0);
  return reader.take();
}

}  // namespace fastfeed
