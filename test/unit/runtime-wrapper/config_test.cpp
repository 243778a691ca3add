#include "runtime-wrapper/config.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vgpu::runtime {
namespace {

using testing::ElementsAre;

TEST(Config, IsTheDefaultsWithoutAFile) {
  const auto config = load_config("/nonexistent/runtime.toml");
  ASSERT_TRUE(config);
  EXPECT_EQ(print_config(*config), print_config(Config{}));
}

TEST(Config, TakesEveryKey) {
  const auto config = parse_config(R"(
low_level_runtimes = ["/opt/crun", "runc"]
nvidia_runtimes = ["/opt/nvidia"]
toolkit_mode = "cdi"
unallocated = "others"
exempt_namespaces = []
privileged = "pass"
graphics = true
record_wait_ms = 0
library_dir = "/opt/vgpu"
)",
                                   "f");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(config->low_level_runtimes, ElementsAre("/opt/crun", "runc"));
  EXPECT_THAT(config->nvidia_runtimes, ElementsAre("/opt/nvidia"));
  EXPECT_EQ(config->toolkit_mode, ToolkitSetting::kCdi);
  EXPECT_EQ(config->unallocated, Unallocated::kOthers);
  EXPECT_TRUE(config->exempt_namespaces.empty());
  EXPECT_EQ(config->privileged, Privileged::kPass);
  EXPECT_TRUE(config->graphics);
  EXPECT_EQ(config->record_wait.count(), 0);
  EXPECT_EQ(config->library_dir, "/opt/vgpu");
}

TEST(Config, ReadsBackWhatItPrints) {
  Config config;
  config.low_level_runtimes = {R"(a "b" \)"};
  config.toolkit_mode = ToolkitSetting::kLegacy;
  const std::string printed = print_config(config);
  const auto again = parse_config(printed, "f");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(print_config(*again), printed);
}

TEST(Config, ThatIsShippedShowsTheDefaults) {
  std::ostringstream text;
  text << std::ifstream(VGPU_SHIPPED_CONFIG).rdbuf();
  std::string settings;
  std::istringstream lines(text.str());
  for (std::string line; std::getline(lines, line);) {
    const bool setting = line.size() > 1 && line[0] == '#' && line[1] != ' ';
    settings += (setting ? line.substr(1) : line) + "\n";
  }
  const auto config = parse_config(settings, "f");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(print_config(*config), print_config(Config{}));
  EXPECT_NE(settings.find("record_wait_ms = 10000"), std::string::npos);
}

class ConfigError : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(ConfigError, NamesFileLineAndKey) {
  const auto config = parse_config(GetParam().first, "/etc/vgpu/runtime.toml");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().message, "'/etc/vgpu/runtime.toml' line " + GetParam().second);
}

INSTANTIATE_TEST_SUITE_P(
    Texts, ConfigError,
    testing::Values(
        std::pair{"\nlimit = 3", "2: key 'limit' is not known"},
        std::pair{"[graphics]\nx = 1", "1: key 'graphics' must be true or false"},
        std::pair{"graphics = \"yes\"", "1: key 'graphics' must be true or false"},
        std::pair{"privileged = \"allow\"", "1: key 'privileged' must be \"deny\" or \"pass\""},
        std::pair{"toolkit_mode = \"csv\"",
                  "1: key 'toolkit_mode' must be \"auto\", \"legacy\" or \"cdi\""},
        std::pair{"record_wait_ms = -1",
                  "1: key 'record_wait_ms' must be a whole number from 0 to 60000"},
        std::pair{"record_wait_ms = 1.5",
                  "1: key 'record_wait_ms' must be a whole number from 0 to 60000"},
        std::pair{"library_dir = \"lib\"", "1: key 'library_dir' must be an absolute path"},
        std::pair{"low_level_runtimes = \"runc\"",
                  "1: key 'low_level_runtimes' must be a list of names or absolute paths"},
        std::pair{"low_level_runtimes = [\"\"]",
                  "1: key 'low_level_runtimes' must be a list of names or absolute paths"}));

TEST(Config, ThatIsNoTomlSaysWhere) {
  const auto config = parse_config("graphics = true\nx = [", "f");
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message, testing::StartsWith("'f' line 2: "));
}

TEST(NvidiasConfig, NamesItsLowLevelRuntimes) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "the file must belong to root";
  const std::string path = testing::TempDir() + "vgpu-nvidia-config.toml";
  std::ofstream(path)
      << "disable-require = false\n[nvidia-container-runtime]\nruntimes = [\"/x/crun\"]\n";
  EXPECT_THAT(nvidia_low_level_runtimes(path), ElementsAre("/x/crun"));
  std::ofstream(path) << "[nvidia-container-runtime]\n";
  EXPECT_THAT(nvidia_low_level_runtimes(path), ElementsAre("runc", "crun"));
  std::filesystem::remove(path);
  EXPECT_THAT(nvidia_low_level_runtimes(path), ElementsAre("runc", "crun"));
}

}  // namespace
}  // namespace vgpu::runtime
