#include "limiter/sys.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

namespace vgpu::limiter::sys {
namespace {

constexpr int kFirstDescriptor = 3;

// errno belongs to the program we are a guest of.
class KeepErrno {
 public:
  KeepErrno() : saved_(errno) {}
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;
  KeepErrno(KeepErrno&&) = delete;
  KeepErrno& operator=(KeepErrno&&) = delete;

 private:
  int saved_;
};

// fcntl, fstat and friends have newer symbol versions than we may need: the numbers have none.
long lock_call(int fd, int command, struct flock* lock) {
  return syscall(SYS_fcntl, fd, command, lock);
}

struct flock byte_lock(short type, std::int64_t offset) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = offset;
  lock.l_len = 1;
  return lock;
}

bool identify_at(int fd, const char* path, int flags, FileId* id) {
  const KeepErrno keep;
  struct stat status = {};
  if (syscall(SYS_newfstatat, fd, path, &status, flags) != 0) {
    return false;
  }
  *id = {status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size)};
  return true;
}

}  // namespace

int open_file(const char* path, bool writable) {
  const KeepErrno keep;
  const int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY);
  if (fd < 0 || fd >= kFirstDescriptor) {
    return fd;
  }
  const long moved = syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, kFirstDescriptor);
  close(fd);
  return static_cast<int>(moved);
}

void close_file(int fd) {
  const KeepErrno keep;
  close(fd);
}

bool identify(int fd, FileId* id) {
  return identify_at(fd, "", AT_EMPTY_PATH, id);
}

bool identify(const char* path, FileId* id) {
  return identify_at(AT_FDCWD, path, 0, id);
}

long read_file(int fd, void* buffer, std::size_t size) {
  const KeepErrno keep;
  return read(fd, buffer, size);
}

void* map_file(int fd, std::size_t size, bool writable) {
  const KeepErrno keep;
  void* address =
      mmap(nullptr, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  return address == MAP_FAILED ? nullptr : address;
}

void* map_memory(std::size_t size) {
  const KeepErrno keep;
  void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return address == MAP_FAILED ? nullptr : address;
}

void unmap(void* address, std::size_t size) {
  const KeepErrno keep;
  munmap(address, size);
}

bool try_lock(int fd, std::int64_t offset) {
  const KeepErrno keep;
  struct flock lock = byte_lock(F_WRLCK, offset);
  return lock_call(fd, F_OFD_SETLK, &lock) == 0;
}

void unlock(int fd, std::int64_t offset) {
  const KeepErrno keep;
  struct flock lock = byte_lock(F_UNLCK, offset);
  lock_call(fd, F_OFD_SETLK, &lock);
}

bool locked_elsewhere(int fd, std::int64_t offset) {
  const KeepErrno keep;
  struct flock lock = byte_lock(F_WRLCK, offset);
  return lock_call(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

std::uint64_t boot_time() {
  const KeepErrno keep;
  struct timespec now = {};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * kSecond + static_cast<std::uint64_t>(now.tv_nsec);
}

void sleep_until_boot_time(std::uint64_t when) {
  const struct timespec until = {static_cast<time_t>(when / kSecond),
                                 static_cast<long>(when % kSecond)};
  clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &until, nullptr);
}

void yield() {
  const KeepErrno keep;
  syscall(SYS_sched_yield);
}

std::uint32_t process_id() {
  const KeepErrno keep;
  return static_cast<std::uint32_t>(syscall(SYS_getpid));
}

std::uint64_t pid_namespace() {
  FileId id;
  return identify("/proc/self/ns/pid", &id) ? id.inode : 0;
}

void print(const char* text, std::size_t size) {
  const KeepErrno keep;
  if (write(STDERR_FILENO, text, size) < 0) {
    return;
  }
}

}  // namespace vgpu::limiter::sys
