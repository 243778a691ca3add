#include "common/gpu/allocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/allocation.h"

namespace vgpu::gpu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kText =
    R"({"v":1,"gen":7,"pod":"0b9b1b5e-1111-4222-8333-444455556666","node":"node-a.example","containers":{"main":{)"
    R"("gpus":[{"uuid":"GPU-00000000-1111-2222-3333-444455556666","memory":3000,"cores":30}],"policy":"force",)"
    R"("priority":0,"onLimit":"kill","oversubscribe":true,"caps":"compute,utility"}}})";

std::string with(std::string_view before, std::string_view after) {
  std::string text(kText);
  const std::size_t at = text.find(before);
  EXPECT_NE(at, std::string::npos) << before;
  return text.replace(at, before.size(), after);
}

TEST(Allocation, GivesEveryPartOfTheText) {
  const auto allocation = parse_allocation(kText);
  ASSERT_TRUE(allocation) << allocation.error().message;
  EXPECT_EQ(allocation->generation, 7U);
  EXPECT_EQ(allocation->node, "node-a.example");
  const ContainerAllocation* main = allocation->find("main");
  ASSERT_NE(main, nullptr);
  EXPECT_EQ(main->cards.at(0).memory, 3000_MiB);
  EXPECT_EQ(main->cards.at(0).cores, Percent{30});
  EXPECT_EQ(main->policy, Policy::kForce);
  EXPECT_EQ(main->priority, 0U);
  EXPECT_EQ(main->on_limit, OnLimit::kKill);
  EXPECT_TRUE(main->oversubscribe);
  EXPECT_THAT(main->capabilities, ElementsAre("compute", "utility"));
}

TEST(Allocation, DoesNotFindAContainerItDoesNotName) {
  EXPECT_EQ(parse_allocation(kText)->find("sidecar"), nullptr);
}

TEST(Allocation, LimitsNothingButWhatItSays) {
  const auto allocation = parse_allocation(with(
      R"("policy":"force","priority":0,"onLimit":"kill","oversubscribe":true,"caps":"compute,utility")",
      R"("priority":1)"));
  ASSERT_TRUE(allocation) << allocation.error().message;
  const ContainerAllocation& main = *allocation->find("main");
  EXPECT_EQ(main.policy, Policy::kDefault);
  EXPECT_FALSE(main.oversubscribe);
  EXPECT_THAT(main.capabilities, ElementsAre("compute", "utility"));
}

struct Wrong {
  std::string_view before;
  std::string_view after;
  std::string_view reason;
};

class AllocationRefuses : public testing::TestWithParam<Wrong> {};

TEST_P(AllocationRefuses, WithItsReason) {
  const auto allocation = parse_allocation(with(GetParam().before, GetParam().after));
  ASSERT_FALSE(allocation);
  EXPECT_THAT(allocation.error().message, HasSubstr(std::string(GetParam().reason)));
}

INSTANTIATE_TEST_SUITE_P(
    Texts, AllocationRefuses,
    testing::Values(
        Wrong{R"("v":1)", R"("v":2)", "version 2 is not known"},
        Wrong{R"("v":1)", R"("v":"1")", "'v' is missing"},
        Wrong{R"("v":1,)", R"("v":1,"x":1,)", "does not know"},
        Wrong{R"("gen":7)", R"("gen":0)", "'gen' is missing"},
        Wrong{R"("gen":7)", R"("gen":-7)", "'gen' is missing"},
        Wrong{R"("gen":7)", R"("gen":7.0)", "'gen' is missing"},
        Wrong{R"("gen":7)", R"("gen":7,"gen":8)", "appears twice"},
        Wrong{"0b9b1b5e", "../../etc", "'pod' is missing"},
        Wrong{"node-a.example", "Node", "'node' is missing"},
        Wrong{"node-a.example", "", "'node' is missing"},
        Wrong{R"("main")", R"("../main")", "'containers' is missing"},
        Wrong{R"("main":{)", R"("main":{"limit":1,)", "does not know"},
        Wrong{"GPU-0000", "gpu-0000", "'uuid' is missing"},
        Wrong{"GPU-00000000-", "GPU-00000000,", "'uuid' is missing"},
        Wrong{"3333-444455556666", "3333-44445555666", "'uuid' is missing"},
        Wrong{R"("memory":3000)", R"("memory":0)", "from 1 to"},
        Wrong{R"("memory":3000)", R"("memory":18446744073709551615)", "from 1 to"},
        Wrong{R"("memory":3000,)", "", "'memory' is missing"},
        Wrong{R"("cores":30)", R"("cores":101)", "from 0 to 100"},
        Wrong{
            R"("cores":30}],)",
            R"("cores":30},{"uuid":"GPU-00000000-1111-2222-3333-444455556666","memory":1,"cores":0}],)",
            "named twice"},
        Wrong{R"("policy":"force")", R"("policy":"none")", "force, default or off"},
        Wrong{R"("priority":0)", R"("priority":2)", "from 0 to 1"},
        Wrong{R"("onLimit":"kill")", R"("onLimit":"KILL")", "error or kill"},
        Wrong{R"("oversubscribe":true)", R"("oversubscribe":1)", "true or false"},
        Wrong{R"("caps":"compute,utility")", R"("caps":"all")", "'all' is not known"},
        Wrong{R"("caps":"compute,utility")", R"("caps":"")", "'caps' is missing"}));

TEST(Allocation, RefusesMoreThanSixteenCards) {
  std::string cards;
  for (int i = 0; i < 17; ++i) {
    cards += (i > 0 ? "," : "") +
             std::string(R"({"uuid":"GPU-00000000-1111-2222-3333-4444555566)") +
             std::to_string(10 + i) + R"(","memory":1,"cores":0})";
  }
  EXPECT_FALSE(parse_allocation(with(
      R"({"uuid":"GPU-00000000-1111-2222-3333-444455556666","memory":3000,"cores":30})", cards)));
}

TEST(Allocation, RefusesATextBeyondItsBound) {
  EXPECT_FALSE(parse_allocation(std::string(kText) + std::string(api::kMaxAllocationBytes, ' ')));
}

}  // namespace
}  // namespace vgpu::gpu
