#include "runtime-wrapper/allocate.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>

#include "api/allocation.h"
#include "common/base/fd.h"
#include "common/gpu/record.h"
#include "common/gpu/trust.h"
#include "common/oci/spec.h"

namespace vgpu::runtime {
namespace {

struct Signed {
  std::string text;
  std::string signature;
};

Error not_yet_allocated(std::string_view reason) {
  return Error{Code::kUnavailable,
               "not yet allocated: " + std::string(reason) +
                   "; the container is tried again by itself, 'vgpu explain' tells what the "
                   "scheduler waits for"};
}

// Blocks until something changes in the directory or `timeout` has passed.
void wait_for_change(int inotify, std::chrono::milliseconds timeout) {
  pollfd waiting{inotify, POLLIN, 0};
  if (::poll(&waiting, 1, static_cast<int>(timeout.count())) <= 0)
    return;
  char events[4096];
  while (::read(inotify, events, sizeof events) > 0)
    continue;
}

Result<gpu::Record> wait_for_record(const Context& context, const std::string& pod_uid) {
  const UniqueFd inotify(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify)
    return fail(system_error("watch records", errno));
  // Watched before the first look, so that no record slips in between.
  if (::inotify_add_watch(inotify.get(), context.paths.pods().c_str(), IN_MOVED_TO | IN_CREATE) <
      0) {
    return fail(not_yet_allocated("'" + context.paths.pods() +
                                  "' cannot be watched, so the device plugin is not running"));
  }
  const auto deadline = context.clock.monotonic() + context.config->record_wait;
  while (true) {
    auto record = gpu::load_record(context.paths.pods(), pod_uid);
    if (record || record.error().code != Code::kNotFound)
      return record;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - context.clock.monotonic());
    if (left.count() <= 0) {
      return fail(not_yet_allocated("no record '" + context.paths.pods() + "/" + pod_uid +
                                    "' within " +
                                    std::to_string(context.config->record_wait.count()) + " ms"));
    }
    wait_for_change(inotify.get(), left);
  }
}

Status check_target(const gpu::Allocation& allocation, const PodIdentity& pod,
                    const gpu::NodeFacts& node) {
  if (allocation.pod != pod.uid) {
    return fail(Code::kPermission, "the allocation was made for pod UID '" + allocation.pod +
                                       "' and this is '" + pod.uid +
                                       "'; an allocation cannot be copied to another pod");
  }
  if (allocation.node != node.name) {
    return fail(Code::kPermission, "the allocation was made for node '" + allocation.node +
                                       "' and this is '" + node.name + "'");
  }
  return {};
}

std::optional<Signed> annotated(const Json& spec) {
  const auto text = oci::annotation(spec, api::kAllocationAnnotation);
  if (!text)
    return std::nullopt;
  return Signed{*text, oci::annotation(spec, api::kSignatureAnnotation).value_or("")};
}

}  // namespace

Result<gpu::Allocation> verified_allocation(const Context& context, const Json& spec,
                                            const PodIdentity& pod, const gpu::NodeFacts& node,
                                            bool wait) {
  if (!gpu::is_pod_uid(pod.uid)) {
    return fail(Code::kPermission,
                "the engine does not say which pod this is: neither its annotations nor "
                "'linux.cgroupsPath' hold a pod UID");
  }
  auto record = gpu::load_record(context.paths.pods(), pod.uid);
  if (!record && record.error().code != Code::kNotFound)
    return fail(record.error());
  std::optional<Signed> given = annotated(spec);
  if (!given) {
    if (!record && wait)
      record = wait_for_record(context, pod.uid);
    if (!record) {
      if (record.error().code != Code::kNotFound)
        return fail(record.error());
      return fail(not_yet_allocated("the pod carries no allocation and has no record"));
    }
    given = Signed{record->allocation, record->signature};
  }
  if (given->signature.empty()) {
    return fail(Code::kPermission, "allocation refused: annotation '" +
                                       std::string(api::kSignatureAnnotation) + "' is missing");
  }
  TRY_STATUS(gpu::verify_signature(context.paths.trust, given->text, given->signature),
             "allocation refused");
  TRY(gpu::Allocation allocation, gpu::parse_allocation(given->text), "allocation refused");
  TRY_STATUS(check_target(allocation, pod, node), "allocation refused");
  if (record && allocation.generation < record->generation) {
    return fail(Code::kPermission,
                "allocation refused: it is of generation " + std::to_string(allocation.generation) +
                    " and this node has verified " + std::to_string(record->generation) +
                    "; an older allocation cannot come back");
  }
  return allocation;
}

}  // namespace vgpu::runtime
