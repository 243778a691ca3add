#include "runtime-wrapper/pod.h"

#include <algorithm>
#include <string_view>

#include "common/base/text.h"
#include "common/gpu/allocation.h"
#include "common/oci/spec.h"

namespace vgpu::runtime {
namespace {

constexpr std::string_view kCri = "io.kubernetes.cri.";
constexpr std::string_view kCrio = "io.kubernetes.cri-o.";
constexpr std::size_t kLeastUid = 32;  // of a static pod; those of the API server have 36

std::string cri(const Json& spec, std::string_view key) {
  return oci::annotation(spec, std::string(kCri) + std::string(key)).value_or("");
}

bool is_crio(const Json& spec) {
  const Json* annotations = spec.find("annotations");
  if (annotations == nullptr || annotations->members() == nullptr)
    return false;
  const auto& members = *annotations->members();
  return std::any_of(members.begin(), members.end(),
                     [](const auto& member) { return member.first.starts_with(kCrio); });
}

// CRI-O keeps the labels the kubelet gave the container as one JSON text.
PodIdentity identify_crio(const Json& spec) {
  PodIdentity pod;
  pod.sandbox =
      oci::annotation(spec, std::string(kCrio) + "ContainerType").value_or("") == "sandbox";
  const auto labels =
      Json::parse(oci::annotation(spec, std::string(kCrio) + "Labels").value_or("{}"));
  if (!labels)
    return pod;
  const auto label = [&](std::string_view key) {
    const Json* value = labels->find(std::string("io.kubernetes.") + std::string(key));
    const std::string* text = value != nullptr ? value->string() : nullptr;
    return text != nullptr ? *text : std::string();
  };
  pod.uid = label("pod.uid");
  pod.space = label("pod.namespace");
  pod.name = label("pod.name");
  pod.container = label("container.name");
  return pod;
}

PodIdentity identify_containerd(const Json& spec) {
  PodIdentity pod;
  pod.uid = cri(spec, "sandbox-uid");
  pod.space = cri(spec, "sandbox-namespace");
  pod.name = cri(spec, "sandbox-name");
  pod.container = cri(spec, "container-name");
  pod.sandbox = cri(spec, "container-type") == "sandbox";
  return pod;
}

}  // namespace

std::string PodIdentity::full_name() const {
  if (space.empty())
    return name;
  return space + "/" + name;
}

std::string pod_uid_of_cgroup(std::string_view cgroups_path) {
  std::string uid;
  std::string path(cgroups_path);
  std::replace(path.begin(), path.end(), ':', '/');
  for (std::string_view part : split(path, '/')) {
    const bool slice = part.ends_with(".slice");
    if (slice) {
      part.remove_suffix(std::string_view(".slice").size());
      const std::size_t dash = part.rfind("-pod");
      if (dash == std::string_view::npos)
        continue;
      part.remove_prefix(dash + 1);
    }
    if (!part.starts_with("pod"))
      continue;
    std::string found(part.substr(3));
    if (slice)
      std::replace(found.begin(), found.end(), '_', '-');
    if (found.size() >= kLeastUid && gpu::is_pod_uid(found))
      uid = found;
  }
  return uid;
}

PodIdentity identify_pod(const Json& spec) {
  PodIdentity pod = is_crio(spec) ? identify_crio(spec) : identify_containerd(spec);
  const std::string by_cgroup = pod_uid_of_cgroup(oci::cgroups_path(spec));
  if (pod.uid.empty())
    pod.uid = by_cgroup;
  if (!by_cgroup.empty() && by_cgroup != pod.uid) {
    pod.conflict = "the engine's annotations say pod UID '" + pod.uid.substr(0, 64) +
                   "' and 'linux.cgroupsPath' says '" + by_cgroup + "'; the two must be the same";
  }
  return pod;
}

}  // namespace vgpu::runtime
