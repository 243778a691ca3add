#include "oci-hook/hook.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <optional>
#include <utility>

#include "common/base/json.h"
#include "common/oci/container_state.h"
#include "common/oci/substitution.h"
#include "common/oci/substitution_privileges.h"

namespace vgpu::hook {
namespace {

constexpr std::size_t kMaxStateText = std::size_t{64} << 10U;
constexpr unsigned kTimeLimitSeconds = 10;

bool holds_private_directory(int root, const oci::FileIdentity& identity) {
  const int copy = ::fcntl(root, F_DUPFD_CLOEXEC, 0);
  if (copy < 0)
    return false;
  const oci::RootedFs tree{UniqueFd(copy)};
  const auto directory = tree.open_path(oci::kPrivatePath, O_DIRECTORY);
  struct stat status {};
  return directory && ::fstat(directory->get(), &status) == 0 &&
         oci::FileIdentity{status.st_dev, status.st_ino} == identity;
}

Result<UniqueFd> find_root(UniqueFd start_directory, std::string_view state,
                           const oci::FileIdentity& identity) {
  if (start_directory && holds_private_directory(start_directory.get(), identity))
    return start_directory;
  for (const std::string& path : root_candidates(state)) {
    UniqueFd root(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (root && holds_private_directory(root.get(), identity))
      return root;
  }
  return fail(Code::kNotFound,
              "no root file system in view has the container's own directory at '" +
                  std::string(oci::kPrivatePath) +
                  "'; a volume or the image lies over it, or the runtime is neither runc nor crun");
}

// The allocation's part of the request: from the arguments, or from what the wrapper wrote down.
Status complete_request(const Arguments& arguments, oci::SubstitutionRequest& request) {
  if (arguments.device_minors && arguments.library_path) {
    request.device_minors = *arguments.device_minors;
    request.library_path = *arguments.library_path;
    return {};
  }
  TRY(const oci::ContainerState state, oci::load(arguments.run_directory, arguments.key),
      "read the container's state");
  request.device_minors = arguments.device_minors.value_or(state.device_minors);
  request.library_path = arguments.library_path.value_or(state.library_path);
  return {};
}

Status create_container(const Arguments& arguments, UniqueFd start_directory,
                        std::string_view state) {
  oci::SubstitutionRequest request;
  request.private_directory = arguments.private_directory;
  TRY_STATUS(complete_request(arguments, request), "prepare");
  TRY(const oci::StandIns stand_ins, oci::open_stand_ins(arguments.library_directory), "prepare");
  TRY(const UniqueFd root,
      find_root(std::move(start_directory), state, arguments.private_directory), "find the root");
  TRY(const oci::OwnProc proc, oci::OwnProc::open(), "find the root");
  TRY(request.root_path, proc.path_of(root.get()), "find the root");
  TRY_STATUS(oci::keep_capabilities(oci::kSubstitutionCapabilities), "prepare");
  TRY_STATUS(oci::keep_substitution_calls(), "prepare");
  TRY(const oci::SubstitutionReport report, oci::substitute(stand_ins, root.get(), request),
      "mount");
  return {};
}

}  // namespace

void isolate_process() {
  ::clearenv();  // NOLINT(concurrency-mt-unsafe): the program has one thread
  (void)::syscall(SYS_close_range, 3U, ~0U, 0U);
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  ::umask(077);
  ::alarm(kTimeLimitSeconds);
}

std::vector<std::string> root_candidates(std::string_view state) {
  std::vector<std::string> paths;
  const auto json = Json::parse(state, kMaxStateText);
  if (!json)
    return paths;
  const Json* root = json->find("root");
  const Json* bundle = json->find("bundle");
  const std::string* root_text = root != nullptr ? root->string() : nullptr;
  const std::string* bundle_text = bundle != nullptr ? bundle->string() : nullptr;
  if (bundle_text != nullptr && !bundle_text->starts_with('/'))
    bundle_text = nullptr;
  if (root_text != nullptr && root_text->starts_with('/'))
    paths.push_back(*root_text);
  else if (root_text != nullptr && bundle_text != nullptr)
    paths.push_back(*bundle_text + "/" + *root_text);
  if (bundle_text != nullptr)
    paths.push_back(*bundle_text + "/rootfs");
  return paths;
}

Status run(const Arguments& arguments, UniqueFd start_directory, std::string_view state) {
  if (arguments.phase == Phase::kPoststop) {
    // Everything it removes belongs to root and has write permission for root.
    TRY_STATUS(oci::keep_capabilities({}), "remove what is left of the container");
    TRY_STATUS(oci::remove_container(arguments.run_directory, arguments.key),
               "remove what is left of the container");
    return {};
  }
  TRY_STATUS(create_container(arguments, std::move(start_directory), state),
             "put the limiter in the driver's place");
  return {};
}

void report(const Error& error, const std::string& log) {
  const std::string sentence = "vgpu: " + error.message;
  const std::string line = sentence + "\n";
  bool told = ::write(STDERR_FILENO, line.data(), line.size()) > 0;
  if (log.empty())
    return;
  const UniqueFd file(
      ::open(log.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  Json json = Json::object();
  json.set("level", Json("error"));
  json.set("msg", Json(sentence));
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::string time(32, '\0');
  ::gmtime_r(&now, &parts);
  time.resize(std::strftime(time.data(), time.size(), "%Y-%m-%dT%H:%M:%SZ", &parts));
  json.set("time", Json(time));
  const std::string text = json.text() + "\n";
  told = (file && ::write(file.get(), text.data(), text.size()) > 0) || told;
  (void)told;  // nobody is left to tell
}

}  // namespace vgpu::hook
