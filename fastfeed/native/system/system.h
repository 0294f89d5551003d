// What differs between operating systems: files, processes, threads. Windows has no forks, and no path that blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fastfeed {

struct FileStatus {
  int64_t size, modified_ns;
  bool regular;  // neither a folder nor a pipe or device
};

// A descriptor for reading, which other programs do not inherit; -1 if it cannot be opened. A named pipe opens at once.
int open_file(const char* path);  // UTF-8 on Windows, bytes elsewhere
// The same below an open folder, by no link that leaves it; -1 also where the system cannot tell.
int open_below(int folder, const char* path);
// Where an open file lies, links resolved; empty where the system does not say.
std::string path_of(int fd);
void close_file(int fd);
bool file_status(int fd, FileStatus& status);
// All of the bytes from `offset` on, or false. Other threads may read the descriptor here at the same time; on Windows that
// moves its position.
bool read_file(int fd, uint8_t* into, size_t count, int64_t offset);

int64_t process_id();
int64_t thread_id();  // as the system numbers them; the process's where it does not
int64_t clock_ns();  // as Python's time.perf_counter_ns(), `steady_ns` of fastfeed/system/clocks.py
// Calls it in every child that is forked from now on.
void after_fork(void (*call)());
// A shared library, which stays loaded, and what is called so in it; null where there is none, with the reason.
void* open_library(const char* path, std::string& why);
void* find_symbol(void* library, const char* name);
// Waits about so long, or until a signal arrives.
void pause_ns(int64_t ns);

}  // namespace fastfeed
