#include "runtime-wrapper/run.h"

#include <sys/auxv.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/text.h"
#include "runtime-wrapper/context.h"
#include "runtime-wrapper/create.h"
#include "runtime-wrapper/next_runtime.h"
#include "runtime-wrapper/report.h"
#include "runtime-wrapper/start.h"

namespace vgpu::runtime {
namespace {

constexpr int kFailed = 1;
constexpr int kNoRuntime = 127;

Result<int> read_stage() {
  const auto text = stage_in_environment();
  if (!text)
    return 0;
  const auto stage = to_unsigned(*text);
  if (!stage || *stage >= static_cast<unsigned>(kMaxStage)) {
    return fail(Code::kInvalidArgument,
                "vgpu-runtime has been passed " + std::to_string(kMaxStage) +
                    " times on the way to one runtime: the configured runtimes start each other "
                    "in a circle; 'low_level_runtimes' in '/etc/vgpu/runtime.toml' breaks it");
  }
  return static_cast<int>(*stage);
}

Result<NextRuntime> decide(const Context& context) {
  switch (context.arguments.command) {
    case Command::kCreate:
    case Command::kRun:
      return create(context);
    case Command::kStart:
      return start(context);
    case Command::kExec:
      return exec_into(context);
    case Command::kDelete:
      return remove(context);
    case Command::kNone:
    case Command::kOther:
    case Command::kPrintConfig:
      break;
  }
  return forward(context);
}

int print_configuration(const Context& context) {
  if (!context.config) {
    report(context.arguments, context.config.error(), context.clock);
    return kFailed;
  }
  std::fputs(print_config(*context.config).c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : kFailed;
}

}  // namespace

int run(int argc, char** argv) {
  const RealClock clock;
  std::vector<std::string> words;
  if (argc > 1)
    words.assign(argv + 1, argv + argc);
  const Paths paths;
  Context context{parse_arguments(words), paths, load_config(paths.config), clock};
  if (::getauxval(AT_SECURE) != 0) {
    report(context.arguments, Error{Code::kPermission, "vgpu-runtime must not be set-uid"}, clock);
    return kFailed;
  }
  if (context.arguments.command == Command::kPrintConfig)
    return print_configuration(context);

  const auto stage = read_stage();
  if (!stage) {
    report(context.arguments, stage.error(), clock);
    return kFailed;
  }
  context.stage = *stage;
  const auto next = decide(context);
  if (!next) {
    report(context.arguments, next.error(), clock);
    return low_level_runtime(context) ? kFailed : kNoRuntime;
  }
  report(context.arguments, execute(*next, context.stage, argv), clock);
  return kNoRuntime;
}

}  // namespace vgpu::runtime
