#pragma once

#include <string>
#include <string_view>

#include "common/base/json.h"

namespace vgpu::runtime {

// Who a container is, by what the engine wrote. Empty where the engine said nothing.
struct PodIdentity {
  std::string uid;
  std::string space;  // namespace
  std::string name;
  std::string container;
  bool sandbox = false;
  std::string conflict;  // what the engine's words contradict each other in; empty if they agree

  // "<namespace>/<name>", or what there is of it.
  std::string full_name() const;
};

// The UID in the annotations and the one in linux.cgroupsPath must agree. Under CRI-O only CRI-O's
// own keys count, since it lets pods set the others.
PodIdentity identify_pod(const Json& spec);

// The UID in a cgroups path: ".../pod<uid>/<id>" or "kubepods-…-pod<uid with underscores>.slice:…".
// Empty if there is none.
std::string pod_uid_of_cgroup(std::string_view cgroups_path);

}  // namespace vgpu::runtime
