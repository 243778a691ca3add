#pragma once

#include <optional>
#include <string>
#include <vector>

namespace vgpu::runtime {

enum class Command { kNone, kCreate, kRun, kStart, kExec, kDelete, kOther, kPrintConfig };

// What we need to know of a command line of runc, crun or youki. The line itself is handed on as it
// came.
struct Arguments {
  Command command = Command::kNone;
  // Every option before the command was known. If not, `command` is the first word that is one of
  // ours.
  bool certain = true;
  std::optional<std::string> root;
  std::optional<std::string> log;
  bool log_json = false;
  std::string bundle = ".";  // relative to the working directory; the last one given wins
  std::optional<std::string> pid_file;
  std::optional<std::string>
      spec_file;                   // crun's --config: the specification is not <bundle>/config.json
  std::string id;                  // first word after the command that is no option; may be empty
  std::vector<std::string> words;  // after the command, options left out: one of them is the id
};

// `argv` without the program's name.
Arguments parse_arguments(const std::vector<std::string>& argv);

}  // namespace vgpu::runtime
