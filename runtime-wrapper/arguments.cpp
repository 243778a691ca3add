#include "runtime-wrapper/arguments.h"

#include <algorithm>
#include <span>
#include <string_view>

namespace vgpu::runtime {
namespace {

struct Option {
  std::string_view name;  // without dashes
  bool takes_value;
};

// The options of runc 1.0–1.5, crun 1.0–1.29 and youki 0.5 that stand before the command.
constexpr Option kGlobal[] = {
    {"root", true},
    {"r", true},
    {"log", true},
    {"l", true},
    {"log-format", true},
    {"log-level", true},
    {"criu", true},
    {"rootless", true},
    {"cgroup-manager", true},
    {"debug", false},
    {"systemd-cgroup", false},
    {"s", false},
    {"version", false},
    {"v", false},
    {"V", false},
    {"help", false},
    {"h", false},
    {"?", false},
    {"usage", false},
};

// Those of `create` and `run`.
constexpr Option kCreate[] = {
    {"bundle", true},
    {"b", true},
    {"config", true},
    {"f", true},
    {"console-socket", true},
    {"c", true},
    {"pidfd-socket", true},
    {"pid-file", true},
    {"p", true},
    {"preserve-fds", true},
    {"no-pivot", false},
    {"no-new-keyring", false},
    {"no-subreaper", false},
    {"detach", false},
    {"d", false},
    {"keep", false},
    {"help", false},
    {"h", false},
};

// Those of the other commands whose value could be taken for the container's id.
constexpr Option kOthers[] = {
    {"console-socket", true},
    {"cwd", true},
    {"env", true},
    {"e", true},
    {"user", true},
    {"u", true},
    {"additional-gids", true},
    {"g", true},
    {"process", true},
    {"p", true},
    {"pid-file", true},
    {"process-label", true},
    {"apparmor", true},
    {"cap", true},
    {"c", true},
    {"preserve-fds", true},
    {"cgroup", true},
    {"resources", true},
    {"r", true},
    {"tty", false},
    {"t", false},
    {"detach", false},
    {"d", false},
    {"force", false},
    {"f", false},
    {"all", false},
    {"a", false},
    {"no-new-privs", false},
    {"ignore-paused", false},
    {"regex", false},
    {"help", false},
    {"h", false},
};

struct Found {
  const Option* option = nullptr;
  std::optional<std::string> value;  // what follows "=" or is attached to a single letter
};

Found find_option(std::span<const Option> options, std::string_view word) {
  const std::size_t dashes = std::min(word.find_first_not_of('-'), word.size());
  const std::string_view text = word.substr(dashes);
  const std::size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  for (const Option& option : options) {
    if (option.name != name)
      continue;
    if (equals == std::string_view::npos)
      return {&option, std::nullopt};
    return {&option, std::string(text.substr(equals + 1))};
  }
  // "-bVALUE", as getopt takes it.
  if (dashes == 1 && text.size() > 1) {
    for (const Option& option : options) {
      if (option.takes_value && option.name.size() == 1 && option.name[0] == text[0]) {
        return {&option, std::string(text.substr(1))};
      }
    }
  }
  return {};
}

bool is_option(std::string_view word) {
  return word.size() > 1 && word.front() == '-';
}

Command command_of(std::string_view word) {
  static constexpr std::pair<std::string_view, Command> kCommands[] = {
      {"create", Command::kCreate}, {"run", Command::kRun},       {"start", Command::kStart},
      {"exec", Command::kExec},     {"delete", Command::kDelete},
  };
  for (const auto& [name, command] : kCommands) {
    if (name == word)
      return command;
  }
  return Command::kOther;
}

void take_global(Arguments& arguments, std::string_view name, const std::string& value) {
  if (name == "root" || name == "r")
    arguments.root = value;
  if (name == "log" || name == "l")
    arguments.log = value;
  if (name == "log-format")
    arguments.log_json = value == "json";
}

void take_create(Arguments& arguments, std::string_view name, const std::string& value) {
  if (name == "bundle" || name == "b")
    arguments.bundle = value;
  if (name == "pid-file" || name == "p")
    arguments.pid_file = value;
  if (name == "config" || name == "f")
    arguments.spec_file = value;
}

class Parser {
 public:
  explicit Parser(const std::vector<std::string>& argv) : argv_(argv) {}

  Arguments parse() {
    parse_globals();
    if (arguments_.command != Command::kNone)
      parse_rest();
    return std::move(arguments_);
  }

 private:
  void parse_globals() {
    while (next_ < argv_.size()) {
      const std::string& word = argv_[next_++];
      if (word == "--vgpu-print-config") {
        arguments_.command = Command::kPrintConfig;
        next_ = argv_.size();
        return;
      }
      if (word == "--")
        continue;
      if (!is_option(word)) {
        arguments_.command = command_of(word);
        return;
      }
      const Found found = find_option(kGlobal, word);
      if (found.option == nullptr) {
        scan_for_command();
        return;
      }
      if (found.option->takes_value)
        take_global(arguments_, found.option->name, value_of(found));
    }
  }

  // An option we do not know may or may not take the next word: look for a word that is a command
  // of ours.
  void scan_for_command() {
    arguments_.certain = false;
    for (; next_ < argv_.size(); ++next_) {
      const Command command = command_of(argv_[next_]);
      if (command == Command::kOther) {
        const Found found = is_option(argv_[next_]) ? find_option(kGlobal, argv_[next_]) : Found{};
        if (found.option != nullptr && found.option->takes_value) {
          ++next_;
          take_global(arguments_, found.option->name, value_of(found));
          --next_;
        }
        continue;
      }
      arguments_.command = command;
      ++next_;
      return;
    }
    arguments_.command = Command::kOther;
  }

  void parse_rest() {
    const bool makes =
        arguments_.command == Command::kCreate || arguments_.command == Command::kRun;
    const std::span<const Option> options =
        makes ? std::span<const Option>(kCreate) : std::span<const Option>(kOthers);
    while (next_ < argv_.size()) {
      const std::string& word = argv_[next_++];
      if (word == "--") {
        arguments_.words.insert(arguments_.words.end(),
                                argv_.begin() + static_cast<std::ptrdiff_t>(next_), argv_.end());
        break;
      }
      if (!is_option(word)) {
        arguments_.words.push_back(word);
        if (arguments_.command == Command::kExec)
          break;  // the rest is the program's
        continue;
      }
      const Found found = find_option(options, word);
      if (found.option == nullptr || !found.option->takes_value)
        continue;
      const std::string value = value_of(found);
      if (makes)
        take_create(arguments_, found.option->name, value);
    }
    if (!arguments_.words.empty())
      arguments_.id = arguments_.words.front();
  }

  std::string value_of(const Found& found) {
    if (found.value)
      return *found.value;
    return next_ < argv_.size() ? argv_[next_++] : std::string();
  }

  const std::vector<std::string>& argv_;
  std::size_t next_ = 0;
  Arguments arguments_;
};

}  // namespace

Arguments parse_arguments(const std::vector<std::string>& argv) {
  return Parser(argv).parse();
}

}  // namespace vgpu::runtime
