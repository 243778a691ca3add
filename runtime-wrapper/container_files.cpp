#include "runtime-wrapper/container_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "api/limiter/host.h"
#include "api/limiter/usage.h"
#include "common/base/file.h"
#include "common/gpu/host_page.h"

namespace vgpu::runtime {
namespace {

// Modes below are meant as written. Put back before we hand over: a runtime inherits it.
class NoUmask {
 public:
  NoUmask() : before_(::umask(0)) {}
  ~NoUmask() { ::umask(before_); }
  NoUmask(const NoUmask&) = delete;
  NoUmask& operator=(const NoUmask&) = delete;

 private:
  mode_t before_;
};

Status make_file(int directory, const std::string& name, mode_t mode, std::string_view content,
                 off_t size) {
  const UniqueFd fd(::openat(directory, name.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd)
    return fail(system_error("create '" + name + "'", errno));
  if (size > 0 && ::ftruncate(fd.get(), size) != 0) {
    return fail(system_error("size '" + name + "'", errno));
  }
  if (!content.empty() && ::pwrite(fd.get(), content.data(), content.size(), 0) !=
                              static_cast<ssize_t>(content.size())) {
    return fail(system_error("write '" + name + "'", errno));
  }
  return {};
}

Result<UniqueFd> make_subdirectory(int parent, const std::string& name) {
  if (::mkdirat(parent, name.c_str(), 0755) != 0) {
    return fail(system_error("create directory '" + name + "'", errno));
  }
  UniqueFd fd(::openat(parent, name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd)
    return fail(system_error("open directory '" + name + "'", errno));
  return fd;
}

Status make_slots(int directory) {
  TRY(const UniqueFd driver, make_subdirectory(directory, "driver"), "make slots");
  for (const std::string_view library : {"cuda.", "nvml."}) {
    for (int slot = 0; slot < VGPU_DRIVER_SLOTS; ++slot) {
      TRY_STATUS(make_file(driver.get(), std::string(library) + std::to_string(slot), 0444, {}, 0),
                 "make slots");
    }
  }
  return {};
}

}  // namespace

Result<oci::FileIdentity> make_container_directory(const std::string& run_directory,
                                                   const std::string& key,
                                                   const gpu::ContainerAllocation& share,
                                                   std::uint64_t allocation_generation,
                                                   const gpu::NodeFacts& node) {
  const NoUmask no_umask;
  const std::string parent_path = run_directory + "/containers";
  TRY_STATUS(make_directory(run_directory, 0711), "make container directory");
  TRY_STATUS(make_directory(parent_path, 0711), "make container directory");
  TRY(const UniqueFd parent, open_directory(parent_path), "make container directory");
  TRY(const UniqueFd directory, make_subdirectory(parent.get(), key), "make container directory");

  const vgpu_host_page page =
      gpu::first_host_page(gpu::host_copy(share, allocation_generation, node));
  const std::string_view bytes(reinterpret_cast<const char*>(&page), sizeof page);
  TRY_STATUS(make_file(directory.get(), "host", 0644, bytes, 0), "make container directory");
  TRY_STATUS(make_file(directory.get(), "usage", 0666, gpu::usage_header(), VGPU_USAGE_SIZE),
             "make container directory");
  TRY_STATUS(make_slots(directory.get()), "make container directory");

  struct stat status {};
  if (::fstat(directory.get(), &status) != 0) {
    return fail(system_error("stat container directory", errno));
  }
  return oci::FileIdentity{status.st_dev, status.st_ino};
}

}  // namespace vgpu::runtime
