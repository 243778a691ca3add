#include "oci-hook/hook.h"

#include <gmock/gmock.h>

#include "oci-hook/arguments.h"

namespace vgpu::hook {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string refusal(const std::vector<std::string>& arguments) {
  const auto result = parse_arguments(arguments);
  return result ? "accepted" : result.error().message;
}

TEST(HookArguments, TakesWhatTheWrapperWrites) {
  const auto result = parse_arguments(
      {"create-container", "--key", "abc-01234567", "--private", "5:77", "--minors", "0,3"});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->phase, Phase::kCreateContainer);
  EXPECT_EQ(result->private_directory, (oci::FileIdentity{5, 77}));
  EXPECT_THAT(*result->device_minors, ElementsAre(0U, 3U));
  EXPECT_FALSE(result->library_path.has_value());
}

TEST(HookArguments, NeedsAPhaseAndAKey) {
  EXPECT_THAT(refusal({}), HasSubstr("no phase given"));
  EXPECT_THAT(refusal({"prestart"}), HasSubstr("phase 'prestart'"));
  EXPECT_THAT(refusal({"poststop"}), HasSubstr("'--key' is missing"));
}

TEST(HookArguments, TakesNoKeyThatIsAPath) {
  EXPECT_THAT(refusal({"poststop", "--key", "../x-01234567"}), HasSubstr("not a container's key"));
}

TEST(HookArguments, NeedsTheIdentityOfThePrivateDirectory) {
  EXPECT_THAT(refusal({"create-container", "--key", "a-01234567"}),
              HasSubstr("'--private' is missing"));
  EXPECT_THAT(refusal({"create-container", "--key", "a-01234567", "--private", "1:-2"}),
              HasSubstr("not of the form"));
}

TEST(HookArguments, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(refusal({"poststop", "--key"}), HasSubstr("'--key' is unknown or has no value"));
  EXPECT_THAT(refusal({"poststop", "--kay", "x"}), HasSubstr("'--kay' is unknown"));
  EXPECT_THAT(refusal({"poststop", "--key", "a-01234567", "--minors", "1,x"}),
              HasSubstr("list of minor numbers"));
}

TEST(RootCandidates, ComeFromTheStateOfCrun) {
  EXPECT_THAT(root_candidates(R"({"id":"x","bundle":"/b","root":"fs"})"),
              ElementsAre("/b/fs", "/b/rootfs"));
  EXPECT_THAT(root_candidates(R"({"bundle":"/b","root":"/abs"})"),
              ElementsAre("/abs", "/b/rootfs"));
}

TEST(RootCandidates, AreFewerWhenTheStateIsBroken) {
  EXPECT_THAT(root_candidates(""), IsEmpty());
  EXPECT_THAT(root_candidates("[1]"), IsEmpty());
  EXPECT_THAT(root_candidates(R"({"bundle":"relative","root":7})"), IsEmpty());
}

TEST(Hook, RefusesWithoutARootThatHoldsThePrivateDirectory) {
  Arguments arguments;
  arguments.phase = Phase::kCreateContainer;
  arguments.key = "a-01234567";
  arguments.device_minors.emplace();
  arguments.library_path = "";
  arguments.library_directory = "/nonexistent";
  const auto status = run(arguments, UniqueFd(), "");
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("open the limiter in '/nonexistent'"));
}

}  // namespace
}  // namespace vgpu::hook
