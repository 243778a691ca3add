#include "runtime-wrapper/create.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>

#include "api/allocation.h"
#include "common/base/file.h"
#include "common/base/text.h"
#include "common/gpu/allocation.h"
#include "common/gpu/node.h"
#include "common/oci/container_state.h"
#include "common/oci/spec.h"
#include "common/oci/spec_edits.h"
#include "common/oci/substitution.h"
#include "runtime-wrapper/allocate.h"
#include "runtime-wrapper/container_files.h"
#include "runtime-wrapper/pod.h"
#include "runtime-wrapper/wish.h"

namespace vgpu::runtime {
namespace {

struct Bundle {
  std::string path;  // absolute
  UniqueFd directory;
  mode_t spec_mode = 0644;
  std::string spec_text;
};

// kNotFound if there is no specification there.
Result<Bundle> open_bundle(const Arguments& arguments) {
  const std::string& path = arguments.bundle;
  const std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), std::free);
  if (!real)
    return fail(system_error("open bundle '" + path + "'", errno));
  Bundle bundle;
  bundle.path = real.get();
  TRY(bundle.directory, open_directory(bundle.path), "open bundle");
  auto text = arguments.spec_file ? read_file(*arguments.spec_file, Json::kMaxBytes, Owner::kAnyone)
                                  : read_file_at(bundle.directory.get(), "config.json",
                                                 Json::kMaxBytes, Owner::kAnyone);
  if (!text)
    return fail(text.error());
  bundle.spec_text = std::move(*text);
  struct stat status {};
  if (::fstatat(bundle.directory.get(), "config.json", &status, AT_SYMLINK_NOFOLLOW) == 0) {
    bundle.spec_mode = status.st_mode & 07777U;
  }
  return bundle;
}

// One container on its way through `create`.
struct Subject {
  const Context& context;
  NextRuntime low_level;
  std::string runtime_root;
  std::string key;
  Bundle bundle;
  Json spec;
  PodIdentity pod;
};

std::string name_of(const Subject& subject) {
  std::string name;
  if (!subject.pod.full_name().empty())
    name = "pod '" + subject.pod.full_name() + "', ";
  const std::string& container = subject.pod.container;
  return name + "container '" + (container.empty() ? subject.context.arguments.id : container) +
         "'";
}

bool is_exempt(const Subject& subject) {
  if (!subject.context.config || subject.pod.space.empty())
    return false;
  const auto& spaces = subject.context.config->exempt_namespaces;
  return std::find(spaces.begin(), spaces.end(), subject.pod.space) != spaces.end();
}

std::string absolute(const std::string& path) {
  if (path.empty() || path.starts_with('/'))
    return path;
  const std::unique_ptr<char, void (*)(void*)> here(::getcwd(nullptr, 0), std::free);
  return here ? std::string(here.get()) + "/" + path : path;
}

Result<oci::ContainerGrant> make_grant(const Subject& subject, const gpu::NodeFacts& node,
                                       const gpu::ContainerAllocation& share) {
  const Config& config = *subject.context.config;
  oci::ContainerGrant grant;
  for (const gpu::CardShare& card : share.cards) {
    const gpu::NodeCard* facts = node.find(card.uuid);
    if (facts == nullptr) {
      return fail(Code::kPermission, "card '" + card.uuid +
                                         "' is allocated and not among those of '" +
                                         subject.context.paths.node() +
                                         "'; the card is gone or not managed on this node");
    }
    grant.uuids.push_back(card.uuid);
    grant.minors.push_back(facts->minor);
  }
  grant.capabilities = share.capabilities;
  grant.graphics_allowed = config.graphics;
  const bool cdi = config.toolkit_mode == ToolkitSetting::kAuto
                       ? node.toolkit_mode == gpu::ToolkitMode::kCdi
                       : config.toolkit_mode == ToolkitSetting::kCdi;
  grant.selection = cdi ? oci::DeviceSelection::kCdi : oci::DeviceSelection::kVisibleDevices;
  grant.key = subject.key;
  grant.container_directory = oci::container_directory(subject.context.paths.run, subject.key);
  grant.hook_path = subject.context.paths.hook;
  grant.substitute_by_hook = subject.context.arguments.command == Command::kRun;
  grant.library_directory = config.library_dir;
  grant.log = absolute(subject.context.arguments.log.value_or(""));
  return grant;
}

Status check_hook(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    return fail(system_error("find '" + path + "'", errno));
  if (auto owned = check_root_owned(status, path); !owned)
    return owned;
  if ((status.st_mode & S_IXUSR) == 0) {
    return fail(Code::kPermission, "'" + path + "' is not executable");
  }
  return {};
}

oci::ContainerState make_state(const Subject& subject, const oci::ContainerGrant& grant,
                               const NextRuntime& next) {
  oci::ContainerState state;
  state.key = subject.key;
  state.id = subject.context.arguments.id;
  state.runtime_root = subject.runtime_root;
  state.bundle = subject.bundle.path;
  state.pid_file = absolute(subject.context.arguments.pid_file.value_or(""));
  state.cgroups_path = oci::cgroups_path(subject.spec);
  state.pod_uid = subject.pod.uid;
  state.pod_name = subject.pod.full_name();
  state.container_name = subject.pod.container;
  state.private_directory = grant.private_directory;
  // `run` has no moment between its hook and the program in which `exec` could be refused.
  state.phase = grant.substitute_by_hook ? oci::Phase::kSubstituted : oci::Phase::kCreated;
  state.library_path = oci::environment(subject.spec, "LD_LIBRARY_PATH").value_or("");
  state.device_minors = grant.minors;
  state.user_namespace = oci::has_user_namespace(subject.spec);
  state.runtime = next.path;
  return state;
}

// What needs the container's files to exist. On failure the caller removes them.
Status apply_grant(Subject& subject, oci::ContainerGrant& grant, const gpu::NodeFacts& node,
                   const gpu::ContainerAllocation& share, std::uint64_t generation,
                   const NextRuntime& next) {
  const std::string& run = subject.context.paths.run;
  TRY(grant.private_directory, make_container_directory(run, subject.key, share, generation, node),
      "prepare container");
  TRY(const Json edited, oci::edit_spec(subject.spec, grant), "edit specification");
  TRY_STATUS(oci::save(make_state(subject, grant, next), run), "prepare container");
  TRY_STATUS(write_file_at(subject.bundle.directory.get(), "config.json", edited.text(),
                           subject.bundle.spec_mode),
             "write specification");
  return {};
}

Result<NextRuntime> give(Subject& subject, const gpu::NodeFacts& node,
                         const gpu::ContainerAllocation& share, std::uint64_t generation) {
  const Config& config = *subject.context.config;
  TRY_STATUS(oci::open_stand_ins(config.library_dir), "find the limiter");
  TRY_STATUS(check_hook(subject.context.paths.hook), "find the hook");
  auto grant = make_grant(subject, node, share);
  if (!grant)
    return fail(grant.error());
  NextRuntime next = subject.low_level;
  if (!oci::carries_granted_cards(subject.spec, *grant)) {
    auto nvidia = nvidia_runtime(config);
    if (!nvidia)
      return fail(nvidia.error());
    next = *nvidia;
  }
  const std::string& run = subject.context.paths.run;
  TRY_STATUS(oci::remove_container(run, subject.key), "remove what an earlier attempt left");
  if (auto applied = apply_grant(subject, *grant, node, share, generation, next); !applied) {
    // The first error is the one that counts.
    static_cast<void>(oci::remove_container(run, subject.key));
    return fail(applied.error());
  }
  return next;
}

// `unallocated = "others"`: another device plugin shares the node. Cards that we manage are never
// given by it.
Result<NextRuntime> give_others(const Subject& subject) {
  const Config& config = *subject.context.config;
  TRY(const gpu::NodeFacts node, gpu::load_node(subject.context.paths.node()),
      "tell our cards from others");
  for (const std::uint32_t minor : oci::card_minors(subject.spec)) {
    for (const gpu::NodeCard& card : node.cards) {
      if (card.minor != minor)
        continue;
      return fail(Code::kPermission, "'/dev/nvidia" + std::to_string(minor) +
                                         "' was put in without an allocation and is managed here; "
                                         "asking for it by 'nvidia.com/gpu' limits helps");
    }
  }
  const std::string visible = oci::environment(subject.spec, "NVIDIA_VISIBLE_DEVICES").value_or("");
  for (const std::string_view uuid : split(visible, ',')) {
    if (!gpu::is_card_uuid(uuid) || node.find(uuid) != nullptr) {
      return fail(Code::kPermission, "'NVIDIA_VISIBLE_DEVICES' asks for '" +
                                         std::string(uuid.substr(0, 64)) +
                                         "' without an allocation; only UUIDs of cards that are "
                                         "not managed here may be asked for");
    }
  }
  return nvidia_runtime(config);
}

bool names_cards(const Json& spec) {
  return oci::environment(spec, "NVIDIA_VISIBLE_DEVICES").value_or("").find("GPU-") !=
         std::string::npos;
}

Result<NextRuntime> serve_wish(Subject& subject, const Wish& wish) {
  const Context& context = subject.context;
  if (!context.config)
    return fail(context.config.error());
  if (context.arguments.spec_file) {
    return fail(Code::kInvalidArgument,
                "a GPU container's specification must be the bundle's 'config.json'; '--config' "
                "names another file");
  }
  if (oci::opens_every_card(subject.spec)) {
    if (context.config->privileged == Privileged::kPass)
      return nvidia_runtime(*context.config);
    return fail(Code::kPermission,
                "a privileged container sees every card and cannot be limited; "
                "'securityContext.privileged: false', or 'privileged = \"pass\"' in '" +
                    context.paths.config + "', helps");
  }
  if (!wish.allocated && !wish.requested && context.config->unallocated == Unallocated::kOthers) {
    return give_others(subject);
  }
  TRY(const gpu::NodeFacts node, gpu::load_node(context.paths.node()),
      "the device plugin has not described this node");
  // A container that merely has NVIDIA's parts is not one the scheduler was asked about: nothing to
  // wait for.
  auto allocation = verified_allocation(context, subject.spec, subject.pod, node, wish.requested);
  if (!allocation)
    return fail(allocation.error());
  const gpu::ContainerAllocation* share = allocation->find(subject.pod.container);
  if (share == nullptr) {
    if (!wish.present)
      return subject.low_level;
    return fail(Code::kPermission,
                "it has NVIDIA devices, libraries or hooks and the pod's allocation does not name "
                "it; asking for 'nvidia.com/gpu' in its limits helps");
  }
  return give(subject, node, *share, allocation->generation);
}

// Below NVIDIA's runtime, which was started by us or starts us: everything was decided the first
// time.
Result<NextRuntime> verify_second_pass(const Subject& subject, const Wish& wish) {
  const std::string& run = subject.context.paths.run;
  const auto state = oci::load(run, subject.key);
  if (!state) {
    if (state.error().code != Code::kNotFound)
      return fail(state.error());
    if (!wish || is_exempt(subject))
      return subject.low_level;
    return fail(Code::kPermission,
                "NVIDIA's runtime was started by someone else and has put GPUs in; the engine must "
                "start vgpu-runtime, not NVIDIA's runtime");
  }
  if (!oci::carries_our_edits(subject.spec, subject.key,
                              oci::container_directory(run, subject.key))) {
    return fail(
        Code::kPermission,
        "its specification lost our mounts or our hook on the way through NVIDIA's runtime");
  }
  for (const std::uint32_t minor : oci::card_minors(subject.spec)) {
    const auto& granted = state->device_minors;
    if (std::find(granted.begin(), granted.end(), minor) == granted.end()) {
      return fail(Code::kPermission, "NVIDIA's runtime has put in '/dev/nvidia" +
                                         std::to_string(minor) + "', which is not allocated");
    }
  }
  return subject.low_level;
}

Result<NextRuntime> decide(Subject& subject) {
  const Wish wish = find_wish(subject.spec, subject.pod, subject.context.paths);
  if (subject.context.stage > 0)
    return verify_second_pass(subject, wish);
  if (is_exempt(subject) && (wish || asks_toolkit(subject.spec))) {
    auto nvidia = nvidia_runtime(*subject.context.config);
    if (!nvidia && !wish)
      return subject.low_level;
    return nvidia;
  }
  if (!wish) {
    const bool others =
        subject.context.config && subject.context.config->unallocated == Unallocated::kOthers;
    if (others && !subject.pod.sandbox && names_cards(subject.spec))
      return give_others(subject);
    return subject.low_level;
  }
  if (!subject.pod.conflict.empty())
    return fail(Code::kPermission, subject.pod.conflict);
  if (subject.key.empty()) {
    return fail(oci::container_key(subject.context.arguments.id, subject.runtime_root).error());
  }
  struct stat status {};
  const std::string existing = subject.runtime_root + "/" + subject.context.arguments.id;
  if (::lstat(existing.c_str(), &status) == 0) {
    return fail(Code::kInvalidArgument, "a container of that id exists ('" + existing + "')");
  }
  return serve_wish(subject, wish);
}

}  // namespace

Result<NextRuntime> create(const Context& context) {
  TRY(const NextRuntime low_level, low_level_runtime(context), "hand over");
  auto bundle = open_bundle(context.arguments);
  if (!bundle) {
    // The runtime itself says best that there is nothing to start.
    if (bundle.error().code == Code::kNotFound)
      return low_level;
    return fail(bundle.error());
  }
  auto spec = Json::parse(bundle->spec_text);
  if (!spec) {
    if (!mentions_gpu(bundle->spec_text))
      return low_level;
    return fail(spec.error().within("read specification '" + bundle->path + "/config.json'"));
  }
  PodIdentity pod = identify_pod(*spec);
  Subject subject{
      context,
      low_level,
      runtime_root(context, low_level.path),
      oci::container_key(context.arguments.id, runtime_root(context, low_level.path)).value_or(""),
      std::move(*bundle),
      std::move(*spec),
      std::move(pod)};
  auto next = decide(subject);
  if (!next)
    return fail(next.error().within(name_of(subject)));
  return next;
}

}  // namespace vgpu::runtime
