// A strict stand-in for NVIDIA's container runtime, its prestart hook and its CDI hook, for nodes
// without NVIDIA's software. Which of the three it is follows from the name it is called by.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "test/fakes/nvidia-container-runtime/arguments.h"
#include "test/fakes/nvidia-container-runtime/container.h"
#include "test/fakes/nvidia-container-runtime/edits.h"
#include "test/fakes/nvidia-container-runtime/hooks.h"

namespace vgpu::fakes {
namespace {

void note_invocation(const Inventory& inventory, const std::vector<std::string>& argv) {
  if (inventory.log.empty())
    return;
  std::ofstream(inventory.log, std::ios::app) << (Json{{"argv", argv}}.dump() + "\n");
}

Status check_environment(const Json& spec) {
  const Json::json_pointer env("/process/env");
  if (!spec.contains(env))
    return {};
  for (const Json& entry : spec.at(env))
    if (entry.get_ref<const std::string&>().find('=') == std::string::npos)
      return fail(Code::kInvalidArgument, "invalid environment variable: " + entry.dump());
  return {};
}

Status edit_bundle(const std::string& bundle, const Config& config) {
  const std::string path = bundle + "/config.json";
  TRY(const Json read, read_spec(path), "load OCI spec");
  TRY(Json spec, strict_round_trip(read), "load OCI spec");
  TRY_STATUS(check_environment(spec), "load OCI spec");
  const Selection selection = select_devices(spec, config);
  if (!selection.names.empty()) {
    TRY(const std::vector<Gpu> gpus, resolve_devices(selection, config), "resolve devices");
    if (selection.mode == Mode::kLegacy)
      edit_for_legacy(&spec, gpus);
    else
      edit_for_cdi(&spec, gpus, config);
  }
  std::ofstream file(path, std::ios::trunc);
  file << spec.dump() << std::flush;
  if (!file)
    return fail(system_error("write '" + path + "'", errno));
  return {};
}

Result<std::string> find_low_level_runtime(const Config& config) {
  const char* search = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): one thread
  std::string directories = search != nullptr ? search : "";
  directories += ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  for (const std::string& name : config.runtimes) {
    if (name.starts_with('/') && access(name.c_str(), X_OK) == 0)
      return name;
    for (std::size_t start = 0; start < directories.size();) {
      const std::size_t end = std::min(directories.find(':', start), directories.size());
      const std::string candidate = directories.substr(start, end - start) + "/" + name;
      if (end > start && access(candidate.c_str(), X_OK) == 0)
        return candidate;
      start = end + 1;
    }
  }
  return fail(Code::kNotFound, "no low-level runtime found");
}

Status run_runtime(const std::vector<std::string>& argv, const Arguments& arguments) {
  TRY(const Config config, load_config(), "nvidia-container-runtime");
  note_invocation(config.inventory, argv);
  if (arguments.create)
    TRY_STATUS(edit_bundle(arguments.bundle, config), "edit container");
  TRY(const std::string runtime, find_low_level_runtime(config), "nvidia-container-runtime");
  std::vector<char*> next;
  next.reserve(argv.size() + 1);
  for (const std::string& argument : argv)
    next.push_back(const_cast<char*>(argument.c_str()));
  next[0] = const_cast<char*>(runtime.c_str());
  next.push_back(nullptr);
  execv(runtime.c_str(), next.data());
  return fail(system_error("exec '" + runtime + "'", errno));
}

void report(const Error& error, const Arguments& arguments) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  if (!arguments.log)
    return;
  const Json line = {{"level", "error"}, {"msg", error.message}, {"time", "1970-01-01T00:00:00Z"}};
  std::ofstream(*arguments.log, std::ios::app) << line.dump() << '\n';
}

Status dispatch(const std::vector<std::string>& argv, const Arguments& arguments) {
  const std::string name = std::filesystem::path(argv[0]).filename();
  if (name == "nvidia-container-runtime-hook")
    return run_legacy_hook();
  if (name == "nvidia-cdi-hook")
    return run_cdi_hook({argv.begin() + 1, argv.end()});
  return run_runtime(argv, arguments);
}

}  // namespace
}  // namespace vgpu::fakes

// NOLINTNEXTLINE(bugprone-exception-escape): without memory there is nothing left to do
int main(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  const vgpu::fakes::Arguments arguments = vgpu::fakes::read_arguments(words);
  const vgpu::Status status = vgpu::fakes::dispatch(words, arguments);
  if (status)
    return 0;
  vgpu::fakes::report(status.error(), arguments);
  return 1;
}
