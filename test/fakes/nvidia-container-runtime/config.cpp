#include "test/fakes/nvidia-container-runtime/config.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

namespace vgpu::fakes {
namespace {

Result<toml::table> load_table(const char* path) {
  std::ifstream file(path);
  if (!file)
    return toml::table{};
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  toml::parse_result parsed = toml::parse(text);
  if (!parsed)
    return fail(Code::kInvalidArgument,
                "parse '" + std::string(path) + "': " + std::string(parsed.error().description()));
  return std::move(parsed).table();
}

void read_strings(const toml::node_view<const toml::node>& node, std::vector<std::string>* into) {
  const toml::array* array = node.as_array();
  if (array == nullptr)
    return;
  into->clear();
  for (const toml::node& element : *array)
    if (auto text = element.value<std::string>())
      into->push_back(*text);
}

Inventory read_inventory(const toml::table& table) {
  Inventory inventory;
  inventory.log = table["log"].value_or(std::string());
  inventory.library_directory = table["library_directory"].value_or(std::string());
  inventory.driver_version = table["driver_version"].value_or(std::string());
  read_strings(table["extra_files"], &inventory.extra_files);
  if (const toml::array* gpus = table["gpus"].as_array()) {
    for (const toml::node& element : *gpus) {
      const toml::table* gpu = element.as_table();
      if (gpu == nullptr)
        continue;
      inventory.gpus.push_back(
          {(*gpu)["uuid"].value_or(std::string()), (*gpu)["minor"].value_or(0U)});
    }
  }
  return inventory;
}

}  // namespace

Result<Config> load_config() {
  const char* path =
      std::getenv("NVIDIA_CTK_CONFIG_FILE_PATH");  // NOLINT(concurrency-mt-unsafe): one thread
  TRY(const toml::table table, load_table(path != nullptr ? path : kConfigPath), "load config");
  TRY(const toml::table facts, load_table(kInventoryPath), "load inventory");
  Config config;
  config.inventory = read_inventory(facts);
  config.env_when_unprivileged =
      table["accept-nvidia-visible-devices-envvar-when-unprivileged"].value_or(true);
  config.volume_mounts = table["accept-nvidia-visible-devices-as-volume-mounts"].value_or(false);
  const auto runtime = table["nvidia-container-runtime"];
  config.mode = runtime["mode"].value_or(std::string("auto"));
  read_strings(runtime["runtimes"], &config.runtimes);
  const auto cdi = runtime["modes"]["cdi"];
  read_strings(cdi["annotation-prefixes"], &config.annotation_prefixes);
  config.default_kind = cdi["default-kind"].value_or(config.default_kind);
  return config;
}

}  // namespace vgpu::fakes
