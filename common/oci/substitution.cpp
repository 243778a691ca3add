#include "common/oci/substitution.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "common/base/file.h"
#include "common/oci/elf_file.h"

namespace vgpu::oci {
namespace {

constexpr std::array<std::string_view, kLibraries> kStems = {"libvgpu-cuda.", "libvgpu-nvml."};
constexpr std::array<std::string_view, kLibraries> kSlotStems = {"cuda.", "nvml."};

// In a user namespace that does not map the host's root its files show this owner; nobody in there
// can be it.
constexpr uid_t kOverflowUid = 65534;

bool in_initial_user_namespace() {
  const auto map = read_file("/proc/self/uid_map", 4096, Owner::kAnyone);
  return map && map->find("4294967295") != std::string::npos;
}

Error not_as_installed(const std::string& name) {
  return {Code::kInvalidArgument, "'" + name + "' is not what was installed; reinstall"};
}

Result<StandIn> find_stand_in(int directory, std::string name, bool is_library) {
  struct stat status {};
  if (::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
    return fail(system_error("find '" + name + "'", errno));
  if (status.st_uid == kOverflowUid && !in_initial_user_namespace())
    status.st_uid = 0;
  TRY_STATUS(check_root_owned(status, name), "check owner");
  if (!S_ISREG(status.st_mode) || is_library != (status.st_size != 0))
    return fail(not_as_installed(name));
  return StandIn{std::move(name), {status.st_dev, status.st_ino}, is_library, directory};
}

MountTarget slot_target(const SubstitutionPlan& plan, const SubstitutionPlan::Slot& slot) {
  return {plan.slots_directory.get(),
          std::string(kSlotStems[static_cast<std::size_t>(slot.library)]) +
              std::to_string(slot.number)};
}

Result<FileIdentity> identity_of(int file) {
  struct stat status {};
  if (::fstat(file, &status) != 0)
    return fail(system_error("status", errno));
  return FileIdentity{status.st_dev, status.st_ino};
}

Status bind_stand_in(const StandIn& stand_in, const MountTarget& target, Mounter& mounter) {
  TRY(const UniqueFd file, stand_in.open(), "open");
  return mounter.bind(file.get(), target);
}

// Phase D: what a fresh walk finds, not what was mounted.
Status verify(const SubstitutionPlan& plan, const RootedFs& root) {
  for (const SubstitutionPlan::Slot& slot : plan.slots) {
    const MountTarget target = slot_target(plan, slot);
    TRY(const UniqueFd file, target.open(), "slot");
    TRY(const FileIdentity identity, identity_of(file.get()), "slot '" + target.name + "'");
    if (identity != slot.identity || !is_hardened(file.get()))
      return fail(Code::kInternal, "slot '" + target.name + "' does not hold the driver's file");
  }
  for (const SubstitutionPlan::Cover& cover : plan.covers) {
    TRY(const UniqueFd file, root.open_path(cover.path, O_NOFOLLOW), "public path");
    TRY(const FileIdentity identity, identity_of(file.get()), "'" + cover.path + "'");
    if (identity != cover.stand_in->identity || !is_hardened(file.get()))
      return fail(Code::kInternal, "'" + cover.path +
                                       "' does not lead to the limiter; it was "
                                       "changed while the container was started");
  }
  return {};
}

}  // namespace

Result<UniqueFd> StandIn::open() const {
  UniqueFd file(::openat(directory, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!file)
    return fail(system_error("open '" + name + "'", errno));
  TRY(const FileIdentity found, identity_of(file.get()), "open '" + name + "'");
  if (found != identity)
    return fail(Code::kPermission, "'" + name + "' was replaced meanwhile; try again");
  if (!is_library)
    return file;
  const UniqueFd readable(::openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!readable)
    return fail(system_error("open '" + name + "'", errno));
  TRY(const ElfKind kind, elf_kind(readable.get()), "read '" + name + "'");
  if (kind != ElfKind::kNative)
    return fail(not_as_installed(name));
  return file;
}

Result<StandIns> open_stand_ins(const std::string& library_dir) {
  const std::string purpose = "open the limiter in '" + library_dir + "'";
  StandIns stand_ins;
  TRY(stand_ins.directory, open_directory(library_dir), purpose);
  const int directory = stand_ins.directory.get();
  for (std::size_t library = 0; library < kLibraries; ++library) {
    for (std::size_t number = 0; number < kMaxCopies; ++number) {
      std::string name = std::string(kStems[library]) + std::to_string(number) + ".so";
      TRY(stand_ins.variants[library][number], find_stand_in(directory, std::move(name), true),
          purpose);
    }
  }
  TRY(stand_ins.empty, find_stand_in(directory, "empty", false), purpose);
  return stand_ins;
}

Result<std::vector<UniqueFd>> clone_stand_ins(const SubstitutionPlan& plan, Mounter& mounter) {
  std::vector<UniqueFd> clones;
  for (const SubstitutionPlan::Cover& cover : plan.covers) {
    if (cover.present)
      continue;
    TRY(const UniqueFd file, cover.stand_in->open(), "prepare the limiter");
    auto clone = mounter.clone(file.get());
    if (!clone && clone.error().code == Code::kUnavailable)
      return std::vector<UniqueFd>{};
    TRY(UniqueFd mount, std::move(clone), "prepare the limiter for '" + cover.path + "'");
    clones.push_back(std::move(mount));
  }
  return clones;
}

Status apply_substitution(const SubstitutionPlan& plan, const std::vector<UniqueFd>& clones,
                          const RootedFs& root, Mounter& mounter) {
  // Slots first: from here to the end every path leads to an empty file or to a limiter that can
  // forward.
  for (const SubstitutionPlan::Slot& slot : plan.slots) {
    const MountTarget target = slot_target(plan, slot);
    Status done;
    if (!slot.source)
      done = mounter.harden(target);
    else if (slot.move_mount)
      done = mounter.move(slot.source.get(), target);
    else
      done = mounter.bind(slot.source.get(), target);
    TRY_STATUS(done, "put the driver into slot '" + target.name + "'");
  }
  std::size_t next = 0;
  for (const SubstitutionPlan::Cover& cover : plan.covers) {
    const MountTarget target{cover.parent.get(), cover.name};
    Status done;
    if (cover.present)
      done = mounter.harden(target);
    else if (next < clones.size())
      done = mounter.attach(clones[next++].get(), target);
    else
      done = bind_stand_in(*cover.stand_in, target, mounter);
    TRY_STATUS(done, "put the limiter on '" + cover.path + "'");
  }
  TRY_STATUS(verify(plan, root), "verify the substitution");
  return {};
}

Result<SubstitutionReport> substitute(const StandIns& stand_ins, int root_fd,
                                      const SubstitutionRequest& request) {
  TRY(const OwnProc proc, OwnProc::open(), "substitute");
  UniqueFd top(::fcntl(root_fd, F_DUPFD_CLOEXEC, 0));
  if (!top)
    return fail(system_error("duplicate descriptor", errno));
  const RootedFs root(std::move(top), request.resolver);
  Mounter mounter(proc, request.mount_calls, request.step_limit);
  TRY(SubstitutionPlan plan, plan_substitution(stand_ins, root, proc, request), "substitute");
  TRY(const std::vector<UniqueFd> clones, clone_stand_ins(plan, mounter), "substitute");
  TRY_STATUS(apply_substitution(plan, clones, root, mounter), "substitute");
  return std::move(plan.report);
}

}  // namespace vgpu::oci
