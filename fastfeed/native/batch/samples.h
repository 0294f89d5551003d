// The samples of one call: encoded files in memory, or pixels. They are read here, or borrowed from their owner.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "image/header.h"
#include "decode/worker.h"
#include "system/system.h"

namespace fastfeed {

// Memory for files, reused: fresh pages cost more than reading into them. Shared by all calls of a pool. In a forked
// child, whose locks are not to be trusted, what is given back is leaked.
class Buffers {
 public:
  struct Free {
    Buffers* owner;
    size_t size;
    void operator()(uint8_t* memory) const { owner->give_back(memory, size); }
  };
  using Buffer = std::unique_ptr<uint8_t, Free>;

  Buffers();
  ~Buffers();
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  Buffer take(size_t bytes);  // at least so many. Throws std::bad_alloc
  bool are_own() const;       // made by this process, not by one that it was forked from

 private:
  static constexpr size_t kKept = size_t(64) << 20;
  void give_back(uint8_t* memory, size_t size);

  const int forks_;
  std::mutex mutex_;
  std::vector<std::pair<size_t, uint8_t*>> free_;
  size_t kept_ = 0;
};

// Paths one behind another, those of a whole source; a thread puts one together when it reads the file.
struct Names {
  // A folder that the files must lie in, also behind links.
  struct Folder {
    std::string prefix;  // of paths to files in it, with a slash at the end; empty: of paths from the working folder
    std::string real;    // the same with links resolved
    int fd;
  };

  std::string root;  // comes before every name that does not begin with a slash
  const uint8_t* text;
  size_t size;
  const void* ends;  // where each name ends, and the next begins: integers of `width` bytes
  size_t count;
  int width;
  std::vector<Folder> folders = {};  // none: files may lie anywhere

  // A descriptor of the file; -1 if it cannot be opened, or lies in none of the folders.
  int open(int64_t i) const;
  std::string path(int64_t i) const;  // empty where `ends` do not lie in the text, or the name cannot be a file's
};

// Where a sample lies: a whole file by its path, a range of a file, or memory.
struct Location {
  const char* path = "";         // not used where fd >= 0
  const Names* names = nullptr;  // it is the path of a name of these
  int64_t name = 0;
  int fd = -1;
  int64_t first = 0, last = -1;  // bytes; a last of -1 is the file's end
  int64_t most = 0;              // bytes to read; 0: all
  int64_t size = -1;             // of the file, if it is known: another size is a failure
  int64_t modified_ns = -1;      // time of its last change, likewise
  int64_t head = 0;              // bytes before `first`, whose CRC-32 has to be `check`; 0: it has no head
  uint32_t check = 0;
  const std::string* feature = nullptr;  // of the record that the bytes are: see tf_record.h
  const uint8_t* memory = nullptr;       // pixels that are there already
  int height = 0, width = 0;             // of pixels; 0: an encoded file
};

// Its file: the open one, or its own.
class OpenedFile {
 public:
  explicit OpenedFile(const Location& location);
  ~OpenedFile();
  OpenedFile(const OpenedFile&) = delete;
  OpenedFile& operator=(const OpenedFile&) = delete;
  int fd() const { return fd_; }  // -1: it cannot be opened

 private:
  int fd_;
  const bool own_;
};

// Of the size and the time of its last change that the location has.
bool is_unchanged(const Location& location, const FileStatus& status);

enum class Read : int8_t { ok, failed, skipped };  // skipped: there was no room for it, or a stop

struct Sample {
  const uint8_t* data = nullptr;
  size_t size = 0;
  int height = 0, width = 0;  // as displayed; 0 where it is not an image that native code decodes
  Header header;              // of encoded samples
  Status status = Status::not_image;  // of the header
  Read read = Read::ok;
};

// One sample, read whole into memory of `buffers`; Read::failed for whatever is wrong, without a reason; Read::skipped
// after a stop. Its bytes are added to `held` before they are read.
Read read_sample(const Location& location, Buffers& buffers, Buffers::Buffer& memory, Sample& sample,
                 std::atomic<int64_t>& held, Stop stop);
// Reads the header of an encoded sample.
void probe(Sample& sample, const Limits& limits);

}  // namespace fastfeed
