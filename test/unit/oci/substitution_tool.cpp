#include <cstdio>
#include <cstring>
#include <string>

#include "common/base/text.h"
#include "common/oci/substitution.h"

// Substitution in a real container without the wrapper: a front end for integration tests.
//   substitution-tool PID DEVICE:INODE LIBRARY_DIRECTORY CGROUPS_PATH MINORS LIBRARY_PATH
// MINORS is a list like "0,3", CGROUPS_PATH and LIBRARY_PATH may be empty.
int main(int argc, char** argv) {
  if (argc != 7) {
    (void)std::fprintf(stderr, "six arguments expected\n");
    return 2;
  }
  const auto pid = vgpu::to_unsigned(argv[1]);
  const auto identity = vgpu::split(argv[2], ':');
  vgpu::oci::ContainerState state;
  if (!pid || identity.size() != 2)
    return 2;
  state.private_directory = {vgpu::to_unsigned(identity[0]).value_or(0),
                             vgpu::to_unsigned(identity[1]).value_or(0)};
  state.cgroups_path = argv[4];
  for (const std::string_view minor : vgpu::split(argv[5], ','))
    state.device_minors.push_back(
        static_cast<std::uint32_t>(vgpu::to_unsigned(minor).value_or(~0U)));
  state.library_path = argv[6];
  const vgpu::Status status =
      vgpu::oci::substitute_in_container(state, static_cast<pid_t>(*pid), argv[3]);
  if (status)
    return 0;
  (void)std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return 1;
}
