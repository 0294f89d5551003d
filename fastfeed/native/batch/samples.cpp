#include "batch/samples.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <tuple>

#include "decode/probe.h"
#include "system/checksums.h"
#include "system/system.h"
#include "batch/tf_record.h"

namespace fastfeed {
namespace {

constexpr size_t kSmallest = 4096;
constexpr int64_t kLargestFile = int64_t(1) << 30;  // as storage/local_file.py

// Sizes have two bits of mantissa, so at most a quarter of a buffer is unused, and one fits the next file of its kind.
size_t rounded(size_t bytes) {
  size_t step = kSmallest / 4;
  while (bytes > 8 * step) step *= 2;
  return std::max(kSmallest, (bytes + step - 1) / step * step);
}

bool is_absolute(const std::string& name) {
#ifdef _WIN32
  if (name.size() > 2 && name[1] == ':') return true;  // a drive
  if (name[0] == '\\') return true;
#endif
  return name[0] == '/';
}

// How many forks lie between this process and the one that loaded this code.
int forks() {
  static std::atomic<int> count{0};
  static const bool registered = (after_fork([] { ++count; }), true);
  (void)registered;
  return count;
}

}  // namespace

OpenedFile::OpenedFile(const Location& location) : fd_(location.fd), own_(location.fd < 0) {
  if (own_) fd_ = location.names ? location.names->open(location.name) : open_file(location.path);
}

OpenedFile::~OpenedFile() {
  if (own_ && fd_ >= 0) close_file(fd_);
}

bool is_unchanged(const Location& location, const FileStatus& status) {
  return (location.size < 0 || location.size == status.size) &&
         (location.modified_ns < 0 || location.modified_ns == status.modified_ns);
}

std::string Names::path(int64_t i) const {
  const auto end = [&](int64_t k) -> int64_t {
    if (k < 0) return 0;
    return width == 8 ? static_cast<const int64_t*>(ends)[k] : static_cast<const int32_t*>(ends)[k];
  };
  const int64_t first = end(i - 1), last = end(i);
  if (first < 0 || last < first || size_t(last) > size) return {};
  std::string name(reinterpret_cast<const char*>(text) + first, size_t(last - first));
  if (name.find('\0') != std::string::npos) return {};
  return name.empty() || is_absolute(name) ? name : root + name;
}

int Names::open(int64_t i) const {
  const std::string name = path(i);
  if (folders.empty()) return open_file(name.c_str());
  for (const Folder& folder : folders) {
    const size_t length = folder.prefix.size();
    if (name.compare(0, length, folder.prefix) != 0 || (!length && is_absolute(name))) continue;
    const int fd = open_below(folder.fd, name.c_str() + length);
    if (fd >= 0) return fd;
    break;
  }
  const int fd = open_file(name.c_str());  // by a link to another of the folders, or the system cannot open below one
  if (fd < 0) return fd;
  const std::string where = path_of(fd);
  for (const Folder& folder : folders)
    if (where.compare(0, folder.real.size(), folder.real) == 0) return fd;
  close_file(fd);
  return -1;
}

Buffers::Buffers() : forks_(forks()) {}

bool Buffers::are_own() const { return forks_ == forks(); }

Buffers::~Buffers() {
  for (auto& [size, memory] : free_) delete[] memory;
}

Buffers::Buffer Buffers::take(size_t bytes) {
  const size_t size = rounded(bytes);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = free_.rbegin(); it != free_.rend(); ++it) {
      if (it->first != size) continue;
      uint8_t* memory = it->second;
      free_.erase(std::next(it).base());
      kept_ -= size;
      return Buffer(memory, Free{this, size});
    }
  }
  return Buffer(new uint8_t[size], Free{this, size});
}

void Buffers::give_back(uint8_t* memory, size_t size) {
  if (!are_own()) return;
  uint8_t* unused = memory;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (kept_ + size <= kKept) {
      try {
        free_.emplace_back(size, memory);
        kept_ += size;
        unused = nullptr;
      } catch (const std::bad_alloc&) {
      }
    }
  }
  delete[] unused;
}

namespace {

constexpr size_t kPart = 8 << 20;  // bytes of a file at a time, so that a stop takes effect soon

// The part of what was read that is the sample; false where its checksum is wrong, or nothing is left.
bool unwrap(const Location& location, const uint8_t* data, size_t size, Sample& sample) {
  const size_t head = size_t(location.head);
  if (head && crc32(data, head) != location.check) return false;
  sample.data = data + head;
  sample.size = size - head;
  if (location.feature)
    std::tie(sample.data, sample.size) =
        image_in_record(sample.data, sample.size, location.check, *location.feature);
  if (!sample.data || !sample.size) return false;
  if (location.height) {
    sample.height = location.height, sample.width = location.width;
    sample.status = Status::ok;
  }
  return true;
}

}  // namespace

Read read_sample(const Location& location, Buffers& buffers, Buffers::Buffer& memory, Sample& sample,
                 std::atomic<int64_t>& held, Stop stop) {
  if (location.memory) return unwrap(location, location.memory, size_t(location.last), sample) ? Read::ok : Read::failed;
  const OpenedFile file(location);
  FileStatus status;
  if (file.fd() < 0 || !file_status(file.fd(), status) || !status.regular) return Read::failed;
  const int64_t last = location.last < 0 ? status.size : location.last;
  const int64_t first = location.first - location.head;
  if (last > status.size || first < 0 || last <= location.first || last - first > kLargestFile) return Read::failed;
  const int64_t stop_at = location.most ? std::min(last, location.first + location.most) : last;
  const size_t count = size_t(stop_at - first);
  held += int64_t(count);
  memory = buffers.take(count);
  for (size_t at = 0; at < count; at += kPart) {
    if (is_set(stop)) return Read::skipped;
    if (!read_file(file.fd(), memory.get() + at, std::min(kPart, count - at), first + int64_t(at))) return Read::failed;
  }
  // after the read: nothing was written before or during it
  if (location.modified_ns >= 0 && !file_status(file.fd(), status)) return Read::failed;
  if (!is_unchanged(location, status)) return Read::failed;
  return unwrap(location, memory.get(), count, sample) ? Read::ok : Read::failed;
}

void probe(Sample& sample, const Limits& limits) {
  sample.header = read_header(sample.data, sample.size);
  sample.status = admit(sample.header, sample.size, limits);
  const bool decodable = sample.status == Status::ok;
  sample.height = decodable ? sample.header.shown_height() : 0;
  sample.width = decodable ? sample.header.shown_width() : 0;
}

}  // namespace fastfeed
