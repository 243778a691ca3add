#include "common/oci/container_state.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/text.h"

namespace vgpu::oci {
namespace {

constexpr std::size_t kMaxStateBytes = std::size_t{256} * 1024;
constexpr std::size_t kMaxIdBytes = 128;
constexpr std::size_t kHashDigits = 8;
constexpr int kMaxRemovalDepth = 4;       // the directory is two levels deep
constexpr int kMaxRemovalEntries = 1024;  // and holds 20 entries

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_container_id(std::string_view id) {
  if (id.empty() || id.size() > kMaxIdBytes || !is_alphanumeric(id.front()))
    return false;
  return std::all_of(id.begin(), id.end(), [](char c) {
    return is_alphanumeric(c) || c == '_' || c == '.' || c == '+' || c == '-';
  });
}

std::string_view phase_name(Phase phase) {
  return phase == Phase::kSubstituted ? "substituted" : "created";
}

// Reads typed members of one object and remembers the first that is missing or of another type.
class Members {
 public:
  explicit Members(const Json& object) : object_(object) {}

  std::string text(std::string_view key) {
    const Json* value = find(key);
    const std::string* text = value != nullptr ? value->string() : nullptr;
    if (text == nullptr)
      missing(key);
    return text != nullptr ? *text : std::string();
  }
  std::uint64_t natural(std::string_view key) {
    const Json* value = find(key);
    const auto number = value != nullptr ? value->natural() : std::nullopt;
    if (!number)
      missing(key);
    return number.value_or(0);
  }
  bool boolean(std::string_view key) {
    const Json* value = find(key);
    const auto flag = value != nullptr ? value->boolean() : std::nullopt;
    if (!flag)
      missing(key);
    return flag.value_or(false);
  }
  std::vector<std::uint32_t> minors(std::string_view key) {
    std::vector<std::uint32_t> numbers;
    const Json* value = find(key);
    const Json::Array* items = value != nullptr ? value->items() : nullptr;
    if (items == nullptr) {
      missing(key);
      return numbers;
    }
    for (const Json& item : *items) {
      const auto number = item.natural();
      if (!number || *number > UINT32_MAX)
        missing(key);
      numbers.push_back(static_cast<std::uint32_t>(number.value_or(0)));
    }
    return numbers;
  }

  void missing(std::string_view key) {
    if (wrong_.empty())
      wrong_ = key;
  }
  Status status() const {
    if (wrong_.empty())
      return {};
    return fail(Code::kInvalidArgument, "member '" + wrong_ + "' is missing or wrong");
  }

 private:
  const Json* find(std::string_view key) const { return object_.find(key); }
  const Json& object_;
  std::string wrong_;
};

Result<ContainerState> decode(const Json& json) {
  Members in(json);
  ContainerState state;
  if (in.natural("v") != 1)
    in.missing("v");
  state.key = in.text("key");
  state.id = in.text("id");
  state.runtime_root = in.text("runtimeRoot");
  state.bundle = in.text("bundle");
  state.pid_file = in.text("pidFile");
  state.cgroups_path = in.text("cgroupsPath");
  state.pod_uid = in.text("podUid");
  state.pod_name = in.text("podName");
  state.container_name = in.text("containerName");
  state.private_directory.device = in.natural("privateDevice");
  state.private_directory.inode = in.natural("privateInode");
  const std::string phase = in.text("phase");
  if (phase == phase_name(Phase::kSubstituted)) {
    state.phase = Phase::kSubstituted;
  } else if (phase != phase_name(Phase::kCreated)) {
    in.missing("phase");
  }
  state.library_path = in.text("libraryPath");
  state.device_minors = in.minors("deviceMinors");
  state.user_namespace = in.boolean("userNamespace");
  state.runtime = in.text("runtime");
  if (auto status = in.status(); !status)
    return fail(status.error());
  return state;
}

Json encode(const ContainerState& state) {
  Json::Array minors;
  for (const std::uint32_t minor : state.device_minors) {
    minors.emplace_back(static_cast<std::uint64_t>(minor));
  }
  Json json = Json::object();
  json.set("v", Json(std::uint64_t{1}));
  json.set("key", Json(state.key));
  json.set("id", Json(state.id));
  json.set("runtimeRoot", Json(state.runtime_root));
  json.set("bundle", Json(state.bundle));
  json.set("pidFile", Json(state.pid_file));
  json.set("cgroupsPath", Json(state.cgroups_path));
  json.set("podUid", Json(state.pod_uid));
  json.set("podName", Json(state.pod_name));
  json.set("containerName", Json(state.container_name));
  json.set("privateDevice", Json(state.private_directory.device));
  json.set("privateInode", Json(state.private_directory.inode));
  json.set("phase", Json(phase_name(state.phase)));
  json.set("libraryPath", Json(state.library_path));
  json.set("deviceMinors", Json(std::move(minors)));
  json.set("userNamespace", Json(state.user_namespace));
  json.set("runtime", Json(state.runtime));
  return json;
}

tl::unexpected<Error> cannot(std::string_view verb, const std::string& path, int error_number) {
  return fail(system_error(std::string(verb) + " '" + path + "'", error_number));
}

std::string path_below(const std::string& directory, const std::string& child) {
  return directory + "/" + child;
}

// Removes everything below an open directory without leaving it or following links.
Status clear_directory(UniqueFd directory, const std::string& name, int depth, int& budget) {
  if (depth > kMaxRemovalDepth) {
    return fail(Code::kInternal, "'" + name + "' is nested deeper than anything we made");
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(directory.get()), ::closedir);
  if (!stream)
    return cannot("list", name, errno);
  const int fd = directory.release();  // now the stream's
  // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own, which readdir may be used on
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string child = static_cast<const char*>(entry->d_name);
    if (child == "." || child == "..")
      continue;
    if (--budget < 0)
      return fail(Code::kInternal, "'" + name + "' holds more than we made");
    if (::unlinkat(fd, child.c_str(), 0) == 0 || errno == ENOENT)
      continue;
    const int refused = errno;
    const std::string path = path_below(name, child);
    if (refused != EISDIR && refused != EPERM)
      return cannot("remove", path, refused);
    UniqueFd below(::openat(fd, child.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!below)
      return cannot("open", path, errno);
    if (auto done = clear_directory(std::move(below), path, depth + 1, budget); !done)
      return done;
    if (::unlinkat(fd, child.c_str(), AT_REMOVEDIR) != 0)
      return cannot("remove", path, errno);
  }
  return {};
}

Status remove_directory(const std::string& path) {
  UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!directory) {
    if (errno == ENOENT)
      return {};
    return fail(system_error("open '" + path + "'", errno));
  }
  int budget = kMaxRemovalEntries;
  if (auto cleared = clear_directory(std::move(directory), path, 0, budget); !cleared) {
    return cleared;
  }
  if (::rmdir(path.c_str()) != 0 && errno != ENOENT) {
    return fail(system_error("remove '" + path + "'", errno));
  }
  return {};
}

Status remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return fail(system_error("remove '" + path + "'", errno));
  }
  return {};
}

}  // namespace

Result<std::string> container_key(std::string_view id, std::string_view runtime_root) {
  if (!is_container_id(id)) {
    return fail(Code::kInvalidArgument, "container id '" + std::string(id.substr(0, kMaxIdBytes)) +
                                            "' is not 1 to 128 of letters, digits, '_', '.', '+', "
                                            "'-', the first a letter or digit");
  }
  return std::string(id) + "-" + to_hex(sha256(runtime_root)).substr(0, kHashDigits);
}

bool is_container_key(std::string_view key) {
  if (key.size() < kHashDigits + 2)
    return false;
  const std::string_view hash = key.substr(key.size() - kHashDigits);
  return key[key.size() - kHashDigits - 1] == '-' &&
         is_container_id(key.substr(0, key.size() - kHashDigits - 1)) &&
         hash.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string state_path(std::string_view run_directory, std::string_view key) {
  return std::string(run_directory) + "/state/" + std::string(key);
}

std::string container_directory(std::string_view run_directory, std::string_view key) {
  return std::string(run_directory) + "/containers/" + std::string(key);
}

Status save(const ContainerState& state, const std::string& run_directory) {
  if (!is_container_key(state.key)) {
    return fail(Code::kInvalidArgument, "'" + state.key + "' is no container key");
  }
  TRY_STATUS(make_directory(run_directory, 0711), "save container state");
  const std::string directory_path = run_directory + "/state";
  TRY_STATUS(make_directory(directory_path, 0700), "save container state");
  TRY(const UniqueFd directory, open_directory(directory_path), "save container state");
  TRY_STATUS(write_file_at(directory.get(), state.key, encode(state).text(), 0600),
             "save container state");
  return {};
}

Result<ContainerState> load(const std::string& run_directory, std::string_view key) {
  if (!is_container_key(key)) {
    return fail(Code::kInvalidArgument, "'" + std::string(key) + "' is no container key");
  }
  const std::string path = state_path(run_directory, key);
  TRY(const std::string text, read_file(path, kMaxStateBytes, Owner::kRoot),
      "load container state");
  TRY(const Json json, Json::parse(text, kMaxStateBytes), "load container state '" + path + "'");
  TRY(ContainerState state, decode(json), "load container state '" + path + "'");
  if (state.key != key) {
    return fail(Code::kInvalidArgument, "container state '" + path + "' is of '" + state.key + "'");
  }
  return state;
}

Status remove_container(const std::string& run_directory, std::string_view key) {
  if (!is_container_key(key)) {
    return fail(Code::kInvalidArgument, "'" + std::string(key) + "' is no container key");
  }
  TRY_STATUS(remove_directory(container_directory(run_directory, key)), "remove container");
  TRY_STATUS(remove_file(state_path(run_directory, temporary_name(key))), "remove container");
  TRY_STATUS(remove_file(state_path(run_directory, key)), "remove container");
  return {};
}

}  // namespace vgpu::oci
