#include "system/system.h"

#include <cerrno>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
// after it
#include <fcntl.h>
#include <io.h>

#include <string>
#else
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#ifdef __linux__
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif
#endif

namespace fastfeed {

#ifdef _WIN32

namespace {

HANDLE handle_of(int fd) { return reinterpret_cast<HANDLE>(_get_osfhandle(fd)); }

}  // namespace

int open_file(const char* path) {
  const int size = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, nullptr, 0);
  if (size <= 0) return -1;
  std::wstring wide(size_t(size), L'\0');
  MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide.data(), size);
  return _wopen(wide.c_str(), _O_RDONLY | _O_BINARY | _O_NOINHERIT);
}

int open_below(int, const char*) { return -1; }

std::string path_of(int) { return {}; }

void close_file(int fd) { _close(fd); }

bool file_status(int fd, FileStatus& status) {
  BY_HANDLE_FILE_INFORMATION info;
  const HANDLE handle = handle_of(fd);
  if (handle == INVALID_HANDLE_VALUE || !GetFileInformationByHandle(handle, &info)) return false;
  const auto joined = [](DWORD high, DWORD low) { return int64_t(uint64_t(high) << 32 | low); };
  status.size = joined(info.nFileSizeHigh, info.nFileSizeLow);
  // 100 ns each since 1601, as Python's st_mtime_ns counts them
  constexpr int64_t k1970 = 116444736000000000;
  status.modified_ns = (joined(info.ftLastWriteTime.dwHighDateTime, info.ftLastWriteTime.dwLowDateTime) - k1970) * 100;
  status.regular = GetFileType(handle) == FILE_TYPE_DISK && !(info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY);
  return true;
}

bool read_file(int fd, uint8_t* into, size_t count, int64_t offset) {
  const HANDLE handle = handle_of(fd);
  while (count) {
    OVERLAPPED at{};
    at.Offset = DWORD(uint64_t(offset) & 0xFFFFFFFF);
    at.OffsetHigh = DWORD(uint64_t(offset) >> 32);
    constexpr size_t kMost = size_t(1) << 30;
    DWORD got = 0;
    if (!ReadFile(handle, into, DWORD(count < kMost ? count : kMost), &got, &at) || !got) return false;
    into += got, count -= got, offset += got;
  }
  return true;
}

int64_t process_id() { return int64_t(GetCurrentProcessId()); }

int64_t thread_id() { return int64_t(GetCurrentThreadId()); }

int64_t clock_ns() {
  LARGE_INTEGER now, frequency;
  QueryPerformanceCounter(&now);
  QueryPerformanceFrequency(&frequency);
  const int64_t count = now.QuadPart, rate = frequency.QuadPart;
  return count / rate * 1000000000 + count % rate * 1000000000 / rate;
}

void after_fork(void (*)()) {}

void* open_library(const char* path, std::string& why) {
  HMODULE library = LoadLibraryA(path);
  if (!library) why = "error " + std::to_string(GetLastError()) + " of LoadLibrary";
  return reinterpret_cast<void*>(library);
}

void* find_symbol(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

void pause_ns(int64_t ns) { Sleep(DWORD((ns + 999999) / 1000000)); }

#else

int open_file(const char* path) {
  // O_NONBLOCK: a named pipe called photo.jpg must not stop the thread for ever
  return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

int open_below(int folder, const char* path) {
#ifdef __linux__
  // openat2 of Linux 5.6; the number is the same everywhere, and C libraries know it late
  constexpr long kOpenAt2 = 437;
  constexpr uint64_t kNoMagicLinks = 0x02, kBeneath = 0x08;
  const struct {
    uint64_t flags, mode, resolve;
  } how{O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0, kNoMagicLinks | kBeneath};
  return int(syscall(kOpenAt2, folder, path, &how, sizeof how));
#else
  (void)folder, (void)path;
  return -1;
#endif
}

std::string path_of(int fd) {
  char path[4096];
#ifdef __APPLE__
  return fcntl(fd, F_GETPATH, path) == 0 ? std::string(path) : std::string();  // of up to MAXPATHLEN, 1024
#else
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = readlink(link.c_str(), path, sizeof path);
  return length > 0 && size_t(length) < sizeof path ? std::string(path, size_t(length)) : std::string();
#endif
}

void close_file(int fd) { close(fd); }

bool file_status(int fd, FileStatus& status) {
  struct stat info;
  if (fstat(fd, &info) != 0) return false;
#ifdef __APPLE__
  const timespec& modified = info.st_mtimespec;
#else
  const timespec& modified = info.st_mtim;
#endif
  status = {int64_t(info.st_size), int64_t(modified.tv_sec) * 1000000000 + modified.tv_nsec, S_ISREG(info.st_mode)};
  return true;
}

bool read_file(int fd, uint8_t* into, size_t count, int64_t offset) {
  while (count) {
    const ssize_t got = pread(fd, into, count, off_t(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    into += got, count -= size_t(got), offset += got;
  }
  return true;
}

int64_t process_id() { return int64_t(getpid()); }

int64_t thread_id() {
#if defined(__linux__)
  static thread_local const int64_t id = int64_t(syscall(SYS_gettid));
#elif defined(__APPLE__)
  static thread_local const int64_t id = [] {
    uint64_t number = 0;
    pthread_threadid_np(nullptr, &number);
    return int64_t(number);
  }();
#else
  static thread_local const int64_t id = int64_t(getpid());
#endif
  return id;
}

int64_t clock_ns() {
#ifdef __APPLE__
  return int64_t(clock_gettime_nsec_np(CLOCK_UPTIME_RAW));
#else
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t(now.tv_sec) * 1000000000 + now.tv_nsec;
#endif
}

void after_fork(void (*call)()) { pthread_atfork(nullptr, nullptr, call); }

void* open_library(const char* path, std::string& why) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) why = dlerror();
  return library;
}

void* find_symbol(void* library, const char* name) { return dlsym(library, name); }

void pause_ns(int64_t ns) {
#ifdef __linux__
  static thread_local const int exact = prctl(PR_SET_TIMERSLACK, 1);  // or it takes 50 us longer
  (void)exact;
#endif
  const timespec pause{time_t(ns / 1000000000), long(ns % 1000000000)};
  nanosleep(&pause, nullptr);
}

#endif

}  // namespace fastfeed
