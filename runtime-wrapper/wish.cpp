#include "runtime-wrapper/wish.h"

#include <algorithm>
#include <string_view>

#include "api/allocation.h"
#include "common/base/text.h"
#include "common/gpu/allocation.h"
#include "common/gpu/record.h"
#include "common/oci/spec.h"

namespace vgpu::runtime {
namespace {

// An allocation that cannot be read may name the container.
bool may_name(std::string_view text, const std::string& container) {
  const auto allocation = gpu::parse_allocation(text);
  return !allocation || allocation->find(container) != nullptr;
}

bool has_allocation(const Json& spec, const PodIdentity& pod, const Paths& paths) {
  if (const auto text = oci::annotation(spec, api::kAllocationAnnotation)) {
    return may_name(*text, pod.container);
  }
  if (pod.uid.empty())
    return false;
  const auto record = gpu::load_record(paths.pods(), pod.uid);
  if (!record)
    return record.error().code != Code::kNotFound && gpu::is_pod_uid(pod.uid);
  return may_name(record->allocation, pod.container);
}

// A privileged container gets every device node of the host, whether it wants a GPU or not: nodes
// alone say nothing then.
bool has_nvidia_parts(const Json& spec) {
  return oci::has_toolkit_hook(spec) || oci::has_driver_mount(spec) ||
         (!oci::card_minors(spec).empty() && !oci::opens_every_card(spec));
}

}  // namespace

Wish find_wish(const Json& spec, const PodIdentity& pod, const Paths& paths) {
  Wish wish;
  wish.present = has_nvidia_parts(spec);
  if (pod.sandbox)
    return wish;
  wish.allocated = has_allocation(spec, pod, paths);
  wish.requested = oci::environment(spec, api::kRequestedVariable).has_value();
  return wish;
}

bool asks_toolkit(const Json& spec) {
  const std::string visible = oci::environment(spec, "NVIDIA_VISIBLE_DEVICES").value_or("");
  if (!visible.empty() && visible != "void" && visible != "none")
    return true;
  const Json* annotations = spec.find("annotations");
  if (annotations != nullptr && annotations->members() != nullptr) {
    const auto& members = *annotations->members();
    if (std::any_of(members.begin(), members.end(),
                    [](const auto& member) { return member.first.starts_with("cdi.k8s.io/"); })) {
      return true;
    }
  }
  const Json* mounts = spec.find("mounts");
  if (mounts == nullptr || mounts->items() == nullptr)
    return false;
  return std::any_of(mounts->items()->begin(), mounts->items()->end(), [](const Json& mount) {
    const Json* destination = mount.find("destination");
    return destination != nullptr && destination->string() != nullptr &&
           is_at_or_below(*destination->string(), "/var/run/nvidia-container-devices");
  });
}

bool mentions_gpu(std::string_view spec_text) {
  static constexpr std::string_view kWords[] = {"vgpu",    "VGPU",      "/dev/nvidia",
                                                "libcuda", "libnvidia", "nvidia-c"};
  return std::any_of(std::begin(kWords), std::end(kWords), [&](std::string_view word) {
    return spec_text.find(word) != std::string_view::npos;
  });
}

}  // namespace vgpu::runtime
