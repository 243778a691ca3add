#include "test/fakes/nvidia-container-runtime/arguments.h"

#include <string_view>

namespace vgpu::fakes {
namespace {

// The flag's name if `text` is a flag: any number of leading dashes, up to '='.
std::string_view flag_name(std::string_view text) {
  if (text.empty() || text.front() != '-')
    return {};
  text.remove_prefix(std::min(text.find_first_not_of('-'), text.size()));
  return text.substr(0, text.find('='));
}

std::string_view attached_value(std::string_view text) {
  const std::size_t equals = text.find('=');
  return equals == std::string_view::npos ? std::string_view() : text.substr(equals + 1);
}

}  // namespace

Arguments read_arguments(const std::vector<std::string>& argv) {
  Arguments result;
  for (std::size_t i = 1; i < argv.size(); ++i) {
    const std::string_view name = flag_name(argv[i]);
    const bool is_bundle = name == "b" || name == "bundle";
    if (!is_bundle && name != "log") {
      result.create = result.create || argv[i] == "create";
      continue;
    }
    const bool attached = argv[i].find('=') != std::string::npos;
    if (!attached && i + 1 == argv.size())
      break;
    const std::string value = attached ? std::string(attached_value(argv[i])) : argv[++i];
    if (is_bundle)
      result.bundle = value;
    else
      result.log = value;
  }
  return result;
}

}  // namespace vgpu::fakes
