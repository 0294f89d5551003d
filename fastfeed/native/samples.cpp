#include "samples.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>
#include <tuple>

#include "checksums.h"
#include "tf_record.h"

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

class File {
 public:
  explicit File(const Location& location) : fd_(location.fd), own_(location.fd < 0) {
    // O_NONBLOCK: a named pipe called photo.jpg must not stop the thread for ever
    constexpr int kHow = O_RDONLY | O_NONBLOCK | O_CLOEXEC;
    if (own_) fd_ = open(location.names ? location.names->path(location.name).c_str() : location.path, kHow);
  }
  ~File() {
    if (own_ && fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
  const bool own_;
};

int64_t modified_ns(const struct stat& status) {
#ifdef __APPLE__
  return int64_t(status.st_mtimespec.tv_sec) * 1000000000 + status.st_mtimespec.tv_nsec;
#else
  return int64_t(status.st_mtim.tv_sec) * 1000000000 + status.st_mtim.tv_nsec;
#endif
}

bool read_fully(int fd, uint8_t* into, size_t count, int64_t offset) {
  while (count) {
    const ssize_t got = pread(fd, into, count, off_t(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    into += got, count -= size_t(got), offset += got;
  }
  return true;
}

// How many forks lie between this process and the one that loaded this code.
int forks() {
  static std::atomic<int> count{0};
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++count; });
  (void)registered;
  return count;
}

bool unchanged(const Location& location, const struct stat& status) {
  return (location.size < 0 || location.size == status.st_size) &&
         (location.modified_ns < 0 || location.modified_ns == modified_ns(status));
}

}  // namespace

std::string Names::path(int64_t i) const {
  const auto end = [&](int64_t k) -> int64_t {
    if (k < 0) return 0;
    return width == 8 ? static_cast<const int64_t*>(ends)[k] : static_cast<const int32_t*>(ends)[k];
  };
  const int64_t first = end(i - 1), last = end(i);
  if (first < 0 || last < first || size_t(last) > size) return {};
  std::string name(reinterpret_cast<const char*>(text) + first, size_t(last - first));
  if (name.find('\0') != std::string::npos) return {};
  return name.empty() || name[0] == '/' ? name : root + name;
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
                 std::atomic<int64_t>& held) {
  if (location.memory) return unwrap(location, location.memory, size_t(location.last), sample) ? Read::ok : Read::failed;
  const File file(location);
  struct stat status;
  if (file.fd() < 0 || fstat(file.fd(), &status) != 0 || !S_ISREG(status.st_mode)) return Read::failed;
  const int64_t last = location.last < 0 ? status.st_size : location.last;
  const int64_t first = location.first - location.head;
  if (last > status.st_size || first < 0 || last <= location.first || last - first > kLargestFile) return Read::failed;
  const size_t count = size_t(last - first);
  held += int64_t(count);
  memory = buffers.take(count);
  if (!read_fully(file.fd(), memory.get(), count, first)) return Read::failed;
  // after the read: nothing was written before or during it
  if (location.modified_ns >= 0 && fstat(file.fd(), &status) != 0) return Read::failed;
  if (!unchanged(location, status)) return Read::failed;
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
