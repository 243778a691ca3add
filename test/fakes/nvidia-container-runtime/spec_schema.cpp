#include "test/fakes/nvidia-container-runtime/spec_schema.h"

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace vgpu::fakes {
namespace {

enum class Kind {
  kString,
  kBool,
  kInteger,
  kIntegerPointer,
  kBoolPointer,
  kStrings,
  kIntegers,
  kStringMap,
  kObject,
  kObjectPointer,
  kObjects,
  kObjectMap
};

enum class Empty { kOmit, kKeep };

struct Field {
  std::string_view name;
  Kind kind;
  Empty empty = Empty::kOmit;
  std::string_view type = {};
};

struct Type {
  std::string_view name;
  std::vector<Field> fields;
};

using enum Kind;
constexpr Empty kKeep = Empty::kKeep;
constexpr Empty kOmit = Empty::kOmit;

// One row per structure, fields in the order they are written.
const std::vector<Type>& types() {
  static const std::vector<Type> table = {
      {"Spec",
       {{"ociVersion", kString, kKeep},
        {"process", kObjectPointer, kOmit, "Process"},
        {"root", kObjectPointer, kOmit, "Root"},
        {"hostname", kString},
        {"domainname", kString},
        {"mounts", kObjects, kOmit, "Mount"},
        {"hooks", kObjectPointer, kOmit, "Hooks"},
        {"annotations", kStringMap},
        {"linux", kObjectPointer, kOmit, "Linux"}}},
      {"Process",
       {{"terminal", kBool},
        {"consoleSize", kObjectPointer, kOmit, "Box"},
        {"user", kObject, kKeep, "User"},
        {"args", kStrings},
        {"commandLine", kString},
        {"env", kStrings},
        {"cwd", kString, kKeep},
        {"capabilities", kObjectPointer, kOmit, "Capabilities"},
        {"rlimits", kObjects, kOmit, "Rlimit"},
        {"noNewPrivileges", kBool},
        {"apparmorProfile", kString},
        {"oomScoreAdj", kIntegerPointer},
        {"scheduler", kObjectPointer, kOmit, "Scheduler"},
        {"selinuxLabel", kString},
        {"ioPriority", kObjectPointer, kOmit, "IoPriority"},
        {"execCPUAffinity", kObjectPointer, kOmit, "CpuAffinity"}}},
      {"Box", {{"height", kInteger, kKeep}, {"width", kInteger, kKeep}}},
      {"User",
       {{"uid", kInteger, kKeep},
        {"gid", kInteger, kKeep},
        {"umask", kIntegerPointer},
        {"additionalGids", kIntegers},
        {"username", kString}}},
      {"Capabilities",
       {{"bounding", kStrings},
        {"effective", kStrings},
        {"inheritable", kStrings},
        {"permitted", kStrings},
        {"ambient", kStrings}}},
      {"Rlimit", {{"type", kString, kKeep}, {"hard", kInteger, kKeep}, {"soft", kInteger, kKeep}}},
      {"Scheduler",
       {{"policy", kString, kKeep},
        {"nice", kInteger},
        {"priority", kInteger},
        {"flags", kStrings},
        {"runtime", kInteger},
        {"deadline", kInteger},
        {"period", kInteger}}},
      {"IoPriority", {{"class", kString, kKeep}, {"priority", kInteger, kKeep}}},
      {"CpuAffinity", {{"initial", kString}, {"final", kString}}},
      {"Root", {{"path", kString, kKeep}, {"readonly", kBool}}},
      {"Mount",
       {{"destination", kString, kKeep},
        {"type", kString},
        {"source", kString},
        {"options", kStrings},
        {"uidMappings", kObjects, kOmit, "IdMapping"},
        {"gidMappings", kObjects, kOmit, "IdMapping"}}},
      {"IdMapping",
       {{"containerID", kInteger, kKeep}, {"hostID", kInteger, kKeep}, {"size", kInteger, kKeep}}},
      {"Hooks",
       {{"prestart", kObjects, kOmit, "Hook"},
        {"createRuntime", kObjects, kOmit, "Hook"},
        {"createContainer", kObjects, kOmit, "Hook"},
        {"startContainer", kObjects, kOmit, "Hook"},
        {"poststart", kObjects, kOmit, "Hook"},
        {"poststop", kObjects, kOmit, "Hook"}}},
      {"Hook",
       {{"path", kString, kKeep},
        {"args", kStrings},
        {"env", kStrings},
        {"timeout", kIntegerPointer}}},
      {"Linux",
       {{"uidMappings", kObjects, kOmit, "IdMapping"},
        {"gidMappings", kObjects, kOmit, "IdMapping"},
        {"sysctl", kStringMap},
        {"resources", kObjectPointer, kOmit, "Resources"},
        {"cgroupsPath", kString},
        {"namespaces", kObjects, kOmit, "Namespace"},
        {"devices", kObjects, kOmit, "Device"},
        {"netDevices", kObjectMap, kOmit, "NetDevice"},
        {"seccomp", kObjectPointer, kOmit, "Seccomp"},
        {"rootfsPropagation", kString},
        {"maskedPaths", kStrings},
        {"readonlyPaths", kStrings},
        {"mountLabel", kString},
        {"intelRdt", kObjectPointer, kOmit, "IntelRdt"},
        {"memoryPolicy", kObjectPointer, kOmit, "MemoryPolicy"},
        {"personality", kObjectPointer, kOmit, "Personality"},
        {"timeOffsets", kObjectMap, kOmit, "TimeOffset"}}},
      {"Namespace", {{"type", kString, kKeep}, {"path", kString}}},
      {"NetDevice", {{"name", kString}}},
      {"Device",
       {{"path", kString, kKeep},
        {"type", kString, kKeep},
        {"major", kInteger, kKeep},
        {"minor", kInteger, kKeep},
        {"fileMode", kIntegerPointer},
        {"uid", kIntegerPointer},
        {"gid", kIntegerPointer}}},
      {"Resources",
       {{"devices", kObjects, kOmit, "DeviceRule"},
        {"memory", kObjectPointer, kOmit, "Memory"},
        {"cpu", kObjectPointer, kOmit, "Cpu"},
        {"pids", kObjectPointer, kOmit, "Pids"},
        {"blockIO", kObjectPointer, kOmit, "BlockIo"},
        {"hugepageLimits", kObjects, kOmit, "HugepageLimit"},
        {"network", kObjectPointer, kOmit, "Network"},
        {"rdma", kObjectMap, kOmit, "Rdma"},
        {"unified", kStringMap}}},
      {"DeviceRule",
       {{"allow", kBool, kKeep},
        {"type", kString},
        {"major", kIntegerPointer},
        {"minor", kIntegerPointer},
        {"access", kString}}},
      {"Memory",
       {{"limit", kIntegerPointer},
        {"reservation", kIntegerPointer},
        {"swap", kIntegerPointer},
        {"kernel", kIntegerPointer},
        {"kernelTCP", kIntegerPointer},
        {"swappiness", kIntegerPointer},
        {"disableOOMKiller", kBoolPointer},
        {"useHierarchy", kBoolPointer},
        {"checkBeforeUpdate", kBoolPointer}}},
      {"Cpu",
       {{"shares", kIntegerPointer},
        {"quota", kIntegerPointer},
        {"burst", kIntegerPointer},
        {"period", kIntegerPointer},
        {"realtimeRuntime", kIntegerPointer},
        {"realtimePeriod", kIntegerPointer},
        {"cpus", kString},
        {"mems", kString},
        {"idle", kIntegerPointer}}},
      {"Pids", {{"limit", kIntegerPointer}}},
      {"BlockIo",
       {{"weight", kIntegerPointer},
        {"leafWeight", kIntegerPointer},
        {"weightDevice", kObjects, kOmit, "WeightDevice"},
        {"throttleReadBpsDevice", kObjects, kOmit, "ThrottleDevice"},
        {"throttleWriteBpsDevice", kObjects, kOmit, "ThrottleDevice"},
        {"throttleReadIOPSDevice", kObjects, kOmit, "ThrottleDevice"},
        {"throttleWriteIOPSDevice", kObjects, kOmit, "ThrottleDevice"}}},
      {"WeightDevice",
       {{"major", kInteger, kKeep},
        {"minor", kInteger, kKeep},
        {"weight", kIntegerPointer},
        {"leafWeight", kIntegerPointer}}},
      {"ThrottleDevice",
       {{"major", kInteger, kKeep}, {"minor", kInteger, kKeep}, {"rate", kInteger, kKeep}}},
      {"HugepageLimit", {{"pageSize", kString, kKeep}, {"limit", kInteger, kKeep}}},
      {"Network",
       {{"classID", kIntegerPointer}, {"priorities", kObjects, kOmit, "InterfacePriority"}}},
      {"InterfacePriority", {{"name", kString, kKeep}, {"priority", kInteger, kKeep}}},
      {"Rdma", {{"hcaHandles", kIntegerPointer}, {"hcaObjects", kIntegerPointer}}},
      {"Seccomp",
       {{"defaultAction", kString, kKeep},
        {"defaultErrnoRet", kIntegerPointer},
        {"architectures", kStrings},
        {"flags", kStrings},
        {"listenerPath", kString},
        {"listenerMetadata", kString},
        {"syscalls", kObjects, kOmit, "Syscall"}}},
      {"Syscall",
       {{"names", kStrings, kKeep},
        {"action", kString, kKeep},
        {"errnoRet", kIntegerPointer},
        {"args", kObjects, kOmit, "SyscallArgument"}}},
      {"SyscallArgument",
       {{"index", kInteger, kKeep},
        {"value", kInteger, kKeep},
        {"valueTwo", kInteger},
        {"op", kString, kKeep}}},
      {"IntelRdt",
       {{"closID", kString},
        {"schemata", kStrings},
        {"l3CacheSchema", kString},
        {"memBwSchema", kString},
        {"enableMonitoring", kBool}}},
      {"MemoryPolicy", {{"mode", kString, kKeep}, {"nodes", kString}, {"flags", kStrings}}},
      {"Personality", {{"domain", kString, kKeep}, {"flags", kStrings}}},
      {"TimeOffset", {{"secs", kInteger}, {"nanosecs", kInteger}}},
  };
  return table;
}

std::span<const Field> fields_of(std::string_view type) {
  for (const Type& candidate : types())
    if (candidate.name == type)
      return candidate.fields;
  return {};
}

std::string join(std::string path, std::string_view name) {
  path += '.';
  path += name;
  return path;
}

tl::unexpected<Error> wrong_kind(const std::string& path, std::string_view expected) {
  return fail(Code::kInvalidArgument,
              "json: cannot unmarshal value of '" + path + "' into " + std::string(expected));
}

tl::unexpected<Error> unknown_field(const std::string& name, const std::string& path) {
  return fail(Code::kInvalidArgument, "json: unknown field \"" + name + "\" in '" + path + "'");
}

Result<Json> round_trip_object(const Json& value, std::string_view type, const std::string& path);

Result<Json> round_trip_list(const Json& value, const Field& field, const std::string& path) {
  if (!value.is_array())
    return wrong_kind(path, "a list");
  Json result = Json::array();
  for (const Json& element : value) {
    if (field.kind == kObjects) {
      TRY(Json object, round_trip_object(element, field.type, path), "list element");
      result.push_back(std::move(object));
      continue;
    }
    const bool fits = field.kind == kStrings ? element.is_string() : element.is_number_integer();
    if (!fits)
      return wrong_kind(path, field.kind == kStrings ? "strings" : "integers");
    result.push_back(element);
  }
  return result;
}

Result<Json> round_trip_map(const Json& value, const Field& field, const std::string& path) {
  if (!value.is_object())
    return wrong_kind(path, "a map");
  std::map<std::string, Json> sorted;  // maps are written in the order of their keys
  for (const auto& [key, element] : value.items()) {
    const std::string inner = join(path, key);
    if (field.kind == kObjectMap) {
      TRY(Json object, round_trip_object(element, field.type, inner), "map element");
      sorted[key] = std::move(object);
      continue;
    }
    if (!element.is_string())
      return wrong_kind(inner, "a string");
    sorted[key] = element;
  }
  Json result = Json::object();
  for (auto& [key, element] : sorted)
    result[key] = std::move(element);
  return result;
}

Json zero_of(const Field& field) {
  switch (field.kind) {
    case kString:
      return "";
    case kBool:
      return false;
    case kInteger:
      return 0;
    default:
      return nullptr;
  }
}

bool is_empty(const Json& value, Kind kind) {
  switch (kind) {
    case kString:
      return value.get_ref<const std::string&>().empty();
    case kBool:
      return !value.get<bool>();
    case kInteger:
      return value == 0;
    case kStrings:
    case kIntegers:
    case kObjects:
    case kStringMap:
    case kObjectMap:
      return value.empty();
    default:
      return false;  // pointers and structures are written whenever they are there
  }
}

Result<Json> round_trip_field(const Json& value, const Field& field, const std::string& path) {
  switch (field.kind) {
    case kString:
      return value.is_string() ? Result<Json>(value) : wrong_kind(path, "a string");
    case kBool:
    case kBoolPointer:
      return value.is_boolean() ? Result<Json>(value) : wrong_kind(path, "a bool");
    case kInteger:
    case kIntegerPointer:
      return value.is_number_integer() ? Result<Json>(value) : wrong_kind(path, "an integer");
    case kStrings:
    case kIntegers:
    case kObjects:
      return round_trip_list(value, field, path);
    case kStringMap:
    case kObjectMap:
      return round_trip_map(value, field, path);
    case kObject:
    case kObjectPointer:
      return round_trip_object(value, field.type, path);
  }
  return wrong_kind(path, "anything");
}

Result<Json> round_trip_object(const Json& value, std::string_view type, const std::string& path) {
  if (!value.is_object())
    return wrong_kind(path, type);
  const std::span<const Field> fields = fields_of(type);
  for (const auto& [key, ignored] : value.items()) {
    bool known = false;
    for (const Field& field : fields)
      known = known || field.name == key;
    if (!known)
      return unknown_field(key, path);
  }
  Json result = Json::object();
  for (const Field& field : fields) {
    const auto found = value.find(field.name);
    if (found == value.end() || found->is_null()) {
      if (field.empty == kKeep)
        result[std::string(field.name)] = field.kind == kObject
                                              ? *round_trip_object(Json::object(), field.type, path)
                                              : zero_of(field);
      continue;
    }
    const std::string inner = join(path, field.name);
    TRY(Json written, round_trip_field(*found, field, inner), "unmarshal");
    if (field.empty == kKeep || !is_empty(written, field.kind))
      result[std::string(field.name)] = std::move(written);
  }
  return result;
}

}  // namespace

Result<Json> strict_round_trip(const Json& spec) {
  return round_trip_object(spec, "Spec", "spec");
}

}  // namespace vgpu::fakes
