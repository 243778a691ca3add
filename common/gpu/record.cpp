#include "common/gpu/record.h"

#include "api/allocation.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/gpu/allocation.h"

namespace vgpu::gpu {
namespace {

// The allocation is a text inside a text: each byte may have become six.
constexpr std::size_t kMaxRecordBytes = api::kMaxAllocationBytes * 6 + 4096;

}  // namespace

Result<Record> load_record(const std::string& pods_directory, std::string_view pod_uid) {
  if (!is_pod_uid(pod_uid))
    return fail(Code::kInvalidArgument, "not a pod UID");
  const std::string path = pods_directory + "/" + std::string(pod_uid);
  TRY(const std::string text, read_file(path, kMaxRecordBytes, Owner::kRoot), "read record");
  TRY(const Json json, Json::parse(text, kMaxRecordBytes), "read record '" + path + "'");
  const Json* version = json.find("v");
  const Json* generation = json.find("gen");
  const Json* allocation = json.find("allocation");
  const Json* signature = json.find("signature");
  if (version == nullptr || version->natural() != 1U) {
    return fail(Code::kInvalidArgument, "record '" + path + "' is not of version 1");
  }
  if (generation == nullptr || !generation->natural() || allocation == nullptr ||
      allocation->string() == nullptr || signature == nullptr || signature->string() == nullptr) {
    return fail(Code::kInvalidArgument,
                "record '" + path + "' lacks 'gen', 'allocation' or 'signature'");
  }
  return Record{*generation->natural(), *allocation->string(), *signature->string()};
}

}  // namespace vgpu::gpu
