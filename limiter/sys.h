// System calls as a guest makes them: errno stays as it was, failure is a value, nothing is
// allocated. Everything here needs no symbol newer than the import table allows.
#ifndef VGPU_LIMITER_SYS_H
#define VGPU_LIMITER_SYS_H

#include <cstddef>
#include <cstdint>

namespace vgpu::limiter::sys {

constexpr std::uint64_t kMillisecond = 1'000'000;  // ns
constexpr std::uint64_t kSecond = 1'000'000'000;   // ns

struct FileId {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;  // bytes
};

// The lowest descriptor from 3 up, close-on-exec; -1 on failure. Below 3 live the program's
// standard streams.
int open_file(const char* path, bool writable);
void close_file(int fd);
bool identify(int fd, FileId* id);
bool identify(const char* path, FileId* id);
// Bytes read, at most `size`; -1 on failure.
long read_file(int fd, void* buffer, std::size_t size);

// nullptr on failure. Shared with everybody who maps the file.
void* map_file(int fd, std::size_t size, bool writable);
// Zeroed private memory; nullptr on failure.
void* map_memory(std::size_t size);
void unmap(void* address, std::size_t size);

// Locks of an open file description, one byte each. try_lock never waits.
bool try_lock(int fd, std::int64_t offset);
void unlock(int fd, std::int64_t offset);
// Held by another description than this one; true when the kernel does not say.
bool locked_elsewhere(int fd, std::int64_t offset);

std::uint64_t boot_time();  // CLOCK_BOOTTIME, ns
void sleep_until_boot_time(std::uint64_t when);
void yield();

std::uint32_t process_id();
// Inode of the process's pid namespace, 0 = unknown.
std::uint64_t pid_namespace();

void print(const char* text, std::size_t size);  // to stderr

}  // namespace vgpu::limiter::sys

#endif
