#pragma once

#include <string>

#include "common/base/json.h"
#include "runtime-wrapper/context.h"
#include "runtime-wrapper/pod.h"

namespace vgpu::runtime {

// Why a container is taken for one that wants a GPU. None of it is believed: a wish is only what
// makes us look closer, and a container without one gets no GPU.
struct Wish {
  bool allocated =
      false;  // an allocation, annotated or recorded, names the container or cannot be read
  bool requested = false;  // VGPU_REQUESTED is in its environment
  bool present = false;    // NVIDIA's devices, libraries or hooks are in its specification already
  explicit operator bool() const { return allocated || requested || present; }
};

Wish find_wish(const Json& spec, const PodIdentity& pod, const Paths& paths);

// Whether NVIDIA's runtime, asked, would give the container something.
bool asks_toolkit(const Json& spec);

// The same for a specification we cannot parse: whether its text speaks of GPUs at all.
bool mentions_gpu(std::string_view spec_text);

}  // namespace vgpu::runtime
