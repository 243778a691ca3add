#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

// What the wrapper remembers of one GPU container between `create`, `start`, `exec` and `delete`:
// <run directory>/state/<key>, mode 0600 below 0700, JSON. The container never sees it.
namespace vgpu::oci {

inline constexpr std::string_view kDefaultRunDirectory = "/run/vgpu";

enum class Phase {
  kCreated,      // the specification carries our edits; the driver's files are still the driver's
  kSubstituted,  // ours are in their place: `exec` may enter
};

struct FileIdentity {
  std::uint64_t device = 0;  // st_dev
  std::uint64_t inode = 0;   // st_ino
  bool operator==(const FileIdentity&) const = default;
};

struct ContainerState {
  std::string key;           // container_key(id, runtime_root)
  std::string id;            // as the engine calls the container
  std::string runtime_root;  // `--root` as given, or the low-level runtime's default
  std::string bundle;        // absolute
  std::string pid_file;      // as given to `create`, absolute; empty if none was asked for
  std::string cgroups_path;  // linux.cgroupsPath of the specification, as written
  std::string pod_uid;
  std::string pod_name;  // "<namespace>/<name>", for messages
  std::string container_name;
  FileIdentity private_directory;  // the container directory, seen as /usr/lib/vgpu
  Phase phase = Phase::kCreated;
  std::string library_path;                  // LD_LIBRARY_PATH of process.env (last one), or empty
  std::vector<std::uint32_t> device_minors;  // of the allocated cards: /dev/nvidia<n>
  bool user_namespace = false;               // the specification has linux.uidMappings
  std::string runtime;  // what `create` handed over to: NVIDIA's runtime or the low-level one
  bool operator==(const ContainerState&) const = default;
};

// "<id>-<first 8 hex digits of SHA-256(runtime_root)>". kInvalidArgument unless the id is
// [A-Za-z0-9][A-Za-z0-9_.+-]{0,127}, so that a key is always one harmless path component.
Result<std::string> container_key(std::string_view id, std::string_view runtime_root);
// Whether the text could have come from container_key.
bool is_container_key(std::string_view key);

std::string state_path(std::string_view run_directory, std::string_view key);
std::string container_directory(std::string_view run_directory, std::string_view key);

// Replaces the state file in one step. Makes the directories above it.
Status save(const ContainerState& state, const std::string& run_directory);

// kNotFound if there is none; kInvalidArgument or kPermission if it is not what save wrote.
Result<ContainerState> load(const std::string& run_directory, std::string_view key);

// Removes the container directory and then the state file, so that a killed removal is found and
// finished by the next one. Links are removed, not followed. Nothing there is success.
Status remove_container(const std::string& run_directory, std::string_view key);

}  // namespace vgpu::oci
