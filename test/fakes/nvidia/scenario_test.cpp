#include "test/fakes/nvidia/tool/scenario.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include <gtest/gtest.h>

namespace vgpu::sim {
namespace {

Status load(const std::string& text, StateFile& file) {
  std::string path =
      (std::filesystem::temp_directory_path() / "nvidia-sim-scenario-XXXXXX").string();
  int fd = mkstemp(path.data());
  EXPECT_GE(fd, 0);
  std::ofstream(path) << text;
  Status status = load_scenario(path, file);
  std::filesystem::remove(path);
  return status;
}

class Shipped : public testing::TestWithParam<std::string> {};

TEST_P(Shipped, LoadsWithCardsThatDiffer) {
  auto file = std::make_unique<StateFile>();
  Status status = load_scenario(SIM_SCENARIOS "/" + GetParam() + ".toml", *file);
  ASSERT_TRUE(status.has_value()) << status.error().message;
  std::set<std::string> names;
  for (unsigned card = 0; card < file->card_count; ++card) {
    names.insert(file->cards[card].uuid);
    names.insert(file->cards[card].bus_id);
  }
  EXPECT_EQ(names.size(), 2 * file->card_count);
  EXPECT_GT(file->card_count, 0U);
}

INSTANTIATE_TEST_SUITE_P(Scenario, Shipped,
                         testing::Values("two-cards", "one-t4", "a100-eight", "old-driver"));

TEST(Scenario, NamesAKeyThatIsNotKnown) {
  auto file = std::make_unique<StateFile>();
  Status status = load("colour = 1\n", *file);
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().message.find("key 'colour' is not known"), std::string::npos)
      << status.error().message;
}

TEST(Scenario, NamesAValueThatAKeyCannotHave) {
  auto file = std::make_unique<StateFile>();
  Status status = load("free_delay_ms = -1\n", *file);
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().message.find("'free_delay_ms'"), std::string::npos)
      << status.error().message;
}

TEST(Scenario, WantsACardsNameUuidAndMemory) {
  auto file = std::make_unique<StateFile>();
  EXPECT_FALSE(load("[[gpu]]\nname = 'x'\n", *file).has_value());
}

}  // namespace
}  // namespace vgpu::sim
