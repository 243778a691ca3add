#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/text.h"
#include "common/oci/elf_file.h"
#include "common/oci/mountinfo.h"
#include "common/oci/substitution.h"

// Phases A and B: look at everything, decide everything, change nothing.
namespace vgpu::oci {
namespace {

constexpr std::array<std::string_view, kLibraries> kSlotStems = {"cuda.", "nvml."};
constexpr std::array<std::string_view, kLibraries> kPublicNames = {"libcuda", "libnvidia-ml"};

constexpr unsigned kNvidiaMajor = 195;
// Minors from here on are not cards: 254 is nvidia-modeset, 255 nvidiactl.
constexpr unsigned kFirstControlMinor = 254;
constexpr std::size_t kMaxDevices = 65536;

std::size_t index_of(Library library) {
  return static_cast<std::size_t>(library);
}

std::string slot_name(Library library, std::size_t number) {
  return std::string(kSlotStems[index_of(library)]) + std::to_string(number);
}

std::string_view last_component(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

FileIdentity identity_of(const struct stat& status) {
  return {status.st_dev, status.st_ino};
}

// The directory of ours in the container, and what is mounted on its slots.
struct PrivateDirectory {
  UniqueFd directory;
  UniqueFd slots;
  std::string path;  // in the container, free of links
};

struct Occupied {
  FileIdentity identity;
  std::string origin;  // name the file had where it was mounted from
};

class Planner {
 public:
  Planner(const StandIns& stand_ins, const RootedFs& root, const OwnProc& proc,
          const SubstitutionRequest& request)
      : stand_ins_(stand_ins), root_(root), proc_(proc), request_(request) {}

  Result<SubstitutionPlan> run() {
    TRY(const std::string mountinfo, proc_.read("mountinfo", kMaxMountinfoBytes), "list mounts");
    TRY(mounts_, parse_mountinfo(mountinfo), "list mounts");
    TRY_STATUS(check_private_directory(), "check '" + std::string(kPrivatePath) + "'");
    TRY_STATUS(read_slots(), "check '" + std::string(kPrivatePath) + "/driver'");
    TRY_STATUS(check_devices(root_, request_.device_minors), "check '/dev'");
    DiscoveryRequest discovery;
    discovery.root_path = request_.root_path;
    discovery.mounts = mounts_;
    discovery.library_path = request_.library_path;
    discovery.private_path = private_.path;
    TRY(files_, discover(root_, proc_, discovery), "look for the driver's libraries");
    for (DriverFile& file : files_)
      TRY_STATUS(plan_file(file), "plan '" + file.path + "'");
    TRY_STATUS(resume(), "complete an interrupted start");
    TRY_STATUS(check_found(), "look for the driver's libraries");
    plan_.slots_directory = std::move(private_.slots);
    return std::move(plan_);
  }

 private:
  Status check_private_directory() {
    TRY(private_.directory, root_.open_path(kPrivatePath, O_DIRECTORY), "open");
    struct stat status {};
    if (::fstat(private_.directory.get(), &status) != 0)
      return fail(system_error("status", errno));
    if (identity_of(status) != request_.private_directory)
      return fail(Code::kPermission,
                  "another directory lies there, from the image or from a volume; "
                  "mount nothing at or above it");
    TRY(const std::string seen, proc_.path_of(private_.directory.get()), "path");
    private_.path = path_below(seen, request_.root_path);
    if (!private_.path.ends_with("/vgpu"))
      return fail(Code::kPermission, "the image links it to '" + private_.path + "'");
    private_.slots.reset(::openat(private_.directory.get(), "driver",
                                  O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!private_.slots)
      return fail(system_error("open 'driver'", errno));
    return check_mounts_below();
  }

  // Only what create put there and start moved there: anything else could hide the ledger or the
  // driver.
  Status check_mounts_below() {
    const Mount* own = nullptr;
    bool usage = false;
    for (const Mount& mount : mounts_) {
      const std::string point = path_below(mount.point, request_.root_path);
      if (point == private_.path) {
        if (own != nullptr)
          return fail(Code::kPermission, "something else is mounted over it");
        own = &mount;
      }
    }
    for (const Mount& mount : mounts_) {
      const std::string point = path_below(mount.point, request_.root_path);
      if (point == private_.path || !is_at_or_below(point, private_.path) || point.empty())
        continue;
      const std::string_view below = std::string_view(point).substr(private_.path.size());
      if (below == "/usage" && !usage && own != nullptr && mount.root == own->root + "/usage") {
        usage = true;
        continue;
      }
      if (!slot_of(below))
        return fail(Code::kPermission, "a foreign mount lies at '" + point + "'");
      origins_[std::string(below.substr(below.rfind('/') + 1))] =
          std::string(last_component(mount.root));
    }
    return {};
  }

  static bool slot_of(std::string_view below) {
    constexpr std::string_view kPrefix = "/driver/";
    if (!below.starts_with(kPrefix))
      return false;
    for (const Library library : {Library::kCuda, Library::kNvml})
      for (std::size_t number = 0; number < kMaxCopies; ++number)
        if (below.substr(kPrefix.size()) == slot_name(library, number))
          return true;
    return false;
  }

  Status read_slots() {
    for (const Library library : {Library::kCuda, Library::kNvml})
      for (std::size_t number = 0; number < kMaxCopies; ++number)
        TRY_STATUS(read_slot(library, number), "slot '" + slot_name(library, number) + "'");
    return {};
  }

  Status read_slot(Library library, std::size_t number) {
    const std::string name = slot_name(library, number);
    struct stat status {};
    if (::fstatat(private_.slots.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
      return fail(system_error("status", errno));
    if (status.st_size == 0 && status.st_dev == request_.private_directory.device)
      return {};
    TRY(const UniqueFd file, (MountTarget{private_.slots.get(), name}.open()), "open");
    if (::fstat(file.get(), &status) != 0)
      return fail(system_error("status", errno));
    const FileIdentity identity = identity_of(status);
    TRY(const UniqueFd readable, proc_.reopen(file.get(), O_RDONLY), "open");
    TRY(const ElfKind kind, elf_kind(readable.get()), "read");
    // A variant of ours in a slot would depend on itself.
    if (kind != ElfKind::kNative || variant_of(identity))
      return fail(Code::kPermission, "holds something else than a driver library");
    occupied_[index_of(library)][number] = Occupied{identity, origins_[name]};
    plan_.slots.push_back({library, number, UniqueFd(), false, identity});
    return {};
  }

  struct Variant {
    Library library;
    std::size_t number;
  };
  std::optional<Variant> variant_of(const FileIdentity& identity) const {
    for (const Library library : {Library::kCuda, Library::kNvml})
      for (std::size_t number = 0; number < kMaxCopies; ++number)
        if (stand_ins_.variants[index_of(library)][number].identity == identity)
          return Variant{library, number};
    return std::nullopt;
  }

  Status plan_file(DriverFile& file) {
    if (file.kind == FileKind::kEmpty) {
      if (file.identity == stand_ins_.empty.identity)
        cover(file, stand_ins_.empty, true);
      return {};
    }
    if (file.kind == FileKind::kForeign) {
      cover(file, stand_ins_.empty, false);
      return {};
    }
    if (const auto variant = variant_of(file.identity)) {
      if (variant->library != file.library || !occupied_[index_of(file.library)][variant->number])
        return fail(Code::kPermission, "it is the limiter's file already, but its slot '" +
                                           slot_name(variant->library, variant->number) +
                                           "' holds no driver");
      substituted(file, variant->number, true);
      return {};
    }
    TRY(const std::size_t number, slot_for(file), "find a slot");
    substituted(file, number, false);
    return {};
  }

  Result<std::size_t> slot_for(DriverFile& file) {
    auto& occupied = occupied_[index_of(file.library)];
    for (std::size_t number = 0; number < kMaxCopies; ++number)
      if (occupied[number] && occupied[number]->identity == file.identity)
        return number;
    for (std::size_t number = 0; number < kMaxCopies; ++number) {
      if (occupied[number])
        continue;
      occupied[number] = Occupied{file.identity, ""};
      plan_.slots.push_back(
          {file.library, number, std::move(file.file), file.mounted, file.identity});
      return number;
    }
    return fail(Code::kExhausted, "the container holds more than " + std::to_string(kMaxCopies) +
                                      " different copies of " +
                                      std::string(kPublicNames[index_of(file.library)]) +
                                      "; remove those it does not need");
  }

  void substituted(DriverFile& file, std::size_t number, bool present) {
    plan_.report.substituted.push_back({file.path, file.library, number});
    shown_[index_of(file.library)][number] = true;
    add_cover(file, stand_ins_.variants[index_of(file.library)][number], present);
  }

  void cover(DriverFile& file, const StandIn& stand_in, bool present) {
    plan_.report.covered.push_back(file.path);
    add_cover(file, stand_in, present);
  }

  void add_cover(DriverFile& file, const StandIn& stand_in, bool present) {
    plan_.covers.push_back({file.path, file.name, std::move(file.parent), &stand_in, present});
  }

  // A run that was killed after it had moved a driver's mount into its slot left an empty mount
  // point of the same name.
  Status resume() {
    for (const Library library : {Library::kCuda, Library::kNvml}) {
      for (std::size_t number = 0; number < kMaxCopies; ++number) {
        const auto& occupied = occupied_[index_of(library)][number];
        if (!occupied || occupied->origin.empty())
          continue;
        for (DriverFile& file : files_)
          if (file.kind == FileKind::kEmpty && file.library == library && file.parent &&
              file.name == occupied->origin && file.identity != stand_ins_.empty.identity)
            substituted(file, number, false);
        if (!shown_[index_of(library)][number])
          return fail(Code::kInternal, "slot '" + slot_name(library, number) +
                                           "' is taken and nothing in the container leads to it; "
                                           "delete the container and create it again");
      }
    }
    return {};
  }

  Status check_found() {
    const bool cuda = std::any_of(
        plan_.report.substituted.begin(), plan_.report.substituted.end(),
        [](const SubstitutionReport::Entry& entry) { return entry.library == Library::kCuda; });
    if (cuda || (plan_.covers.empty() && request_.device_minors.empty()))
      return {};
    return fail(Code::kNotFound,
                "the container was given cards but no libcuda for this machine; check that "
                "NVIDIA's container toolkit works on this node and that "
                "NVIDIA_DRIVER_CAPABILITIES names 'compute'");
  }

  const StandIns& stand_ins_;
  const RootedFs& root_;
  const OwnProc& proc_;
  const SubstitutionRequest& request_;
  std::vector<Mount> mounts_;
  PrivateDirectory private_;
  std::map<std::string, std::string> origins_;  // slot name -> name of the file mounted on it
  std::array<std::array<std::optional<Occupied>, kMaxCopies>, kLibraries> occupied_;
  std::array<std::array<bool, kMaxCopies>, kLibraries> shown_{};
  std::vector<DriverFile> files_;
  SubstitutionPlan plan_;
};

}  // namespace

Result<SubstitutionPlan> plan_substitution(const StandIns& stand_ins, const RootedFs& root,
                                           const OwnProc& proc,
                                           const SubstitutionRequest& request) {
  return Planner(stand_ins, root, proc, request).run();
}

Status check_devices(const RootedFs& root, const std::vector<std::uint32_t>& minors) {
  std::vector<std::uint32_t> missing = minors;
  const auto directory = root.open_path("/dev", O_DIRECTORY);
  if (directory) {
    TRY(const RootedFs::Listing listing, RootedFs::list(directory->get(), kMaxDevices), "list");
    for (const std::string& name : listing.names) {
      struct stat status {};
      if (::fstatat(directory->get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
          !S_ISCHR(status.st_mode) || major(status.st_rdev) != kNvidiaMajor ||
          minor(status.st_rdev) >= kFirstControlMinor)
        continue;
      const auto allowed = std::find(minors.begin(), minors.end(), minor(status.st_rdev));
      if (allowed == minors.end())
        return fail(Code::kPermission, "card node '/dev/" + name +
                                           "' is not of the pod's allocation; remove what adds it "
                                           "(a privileged container, a volume, another plugin)");
      std::erase(missing, minor(status.st_rdev));
    }
    if (!listing.complete)
      return fail(Code::kInvalidArgument, "more than " + std::to_string(kMaxDevices) + " entries");
  }
  if (!missing.empty())
    return fail(Code::kNotFound, "card node '/dev/nvidia" + std::to_string(missing.front()) +
                                     "' of the pod's allocation is missing; check that NVIDIA's "
                                     "container toolkit works on this node");
  return {};
}

}  // namespace vgpu::oci
