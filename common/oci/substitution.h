#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/oci/container_state.h"
#include "common/oci/discovery.h"
#include "common/oci/rooted_fs.h"
#include "common/oci/substitution_mounts.h"

// Putting the limiter in the driver's place: each copy of a driver library that a container can
// load is put into a slot, /usr/lib/vgpu/driver/{cuda,nvml}.<n>, and our variant <n>, which depends
// on that slot, is mounted over its public path. Copies are never chosen between: the loader's
// choice stays valid.
namespace vgpu::oci {

inline constexpr std::size_t kMaxCopies = 8;  // of one library; as many variants are built
inline constexpr const char* kPrivatePath = "/usr/lib/vgpu";

// One of our files that gets mounted into containers.
struct StandIn {
  std::string name;
  FileIdentity identity;
  bool is_library = true;
  int directory = -1;  // of the StandIns it belongs to

  // O_PATH; of the 17 files a container needs two. kInvalidArgument if it is not a library of this
  // machine, kPermission if another file has taken its place meanwhile.
  Result<UniqueFd> open() const;
};

struct StandIns {
  UniqueFd directory;
  std::array<std::array<StandIn, kMaxCopies>, kLibraries> variants;
  StandIn empty;  // covers libraries of another architecture
};

// Finds libvgpu-{cuda,nvml}.<0..7>.so and `empty` in `library_dir`. kPermission unless root owns
// each of them and nobody else can write to it, kInvalidArgument if one is not what it should be,
// kNotFound if one is missing.
Result<StandIns> open_stand_ins(const std::string& library_dir);

struct SubstitutionRequest {
  FileIdentity private_directory;  // what must lie at /usr/lib/vgpu
  std::vector<std::uint32_t>
      device_minors;            // of the allocated cards: these and no others may be in /dev
  std::string library_path;     // LD_LIBRARY_PATH of the program, may be empty
  std::string root_path = "/";  // of the container, as seen by this process

  // Seams for tests: kernels without the newer calls, and a crash after so many changes.
  Resolver resolver = Resolver::kKernel;
  MountCalls mount_calls;
  std::size_t step_limit = SIZE_MAX;
};

struct SubstitutionReport {
  struct Entry {
    std::string path;  // public, in the container
    Library library = Library::kCuda;
    std::size_t slot = 0;
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry>
      substituted;  // ours are here now, whether put there by this run or by an earlier one
  std::vector<std::string> covered;  // libraries of another architecture, empty now
};

// Does the whole of it in the mount namespace of the caller, which must also hold the stand-ins.
// `root_fd` (O_PATH) is the container's root. What an interrupted run left is completed; a second
// run changes nothing. On error the container must not start: paths may be empty or still the
// driver's.
Result<SubstitutionReport> substitute(const StandIns& stand_ins, int root_fd,
                                      const SubstitutionRequest& request);

// The same for a container that was created and not yet started, `pid` being its first process: a
// child enters its mount namespace and does it there, bounded to 10 seconds. Refuses a process that
// is not the one `state` speaks of. Full root on the host; the caller has one thread.
Status substitute_in_container(const ContainerState& state, pid_t pid,
                               const std::string& library_dir);

// The steps of substitute, for callers who stand in another namespace between them.
//
// What will be done. Opens everything, changes nothing.
struct SubstitutionPlan {
  struct Slot {
    Library library = Library::kCuda;
    std::size_t number = 0;
    UniqueFd source;          // the real file, O_PATH; none if the slot holds it already
    bool move_mount = false;  // `source` is a mount of its own
    FileIdentity identity;    // of the real file
  };
  struct Cover {
    std::string path;
    std::string name;
    UniqueFd parent;
    const StandIn* stand_in = nullptr;
    bool present = false;  // an earlier run did it
  };
  UniqueFd slots_directory;
  std::vector<Slot> slots;
  std::vector<Cover> covers;
  SubstitutionReport report;
};
Result<SubstitutionPlan> plan_substitution(const StandIns& stand_ins, const RootedFs& root,
                                           const OwnProc& proc, const SubstitutionRequest& request);

// Detached mounts of the stand-ins, one for each cover that is not present, in that order; to be
// called where the stand-ins lie. None at all if the kernel cannot make them: then
// apply_substitution mounts the files themselves.
Result<std::vector<UniqueFd>> clone_stand_ins(const SubstitutionPlan& plan, Mounter& mounter);

// Carries the plan out and verifies by opening everything again.
Status apply_substitution(const SubstitutionPlan& plan, const std::vector<UniqueFd>& clones,
                          const RootedFs& root, Mounter& mounter);

// kPermission if the character devices 195:<0..253> in the container's /dev are not exactly
// `minors`.
Status check_devices(const RootedFs& root, const std::vector<std::uint32_t>& minors);

}  // namespace vgpu::oci
