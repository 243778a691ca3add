#include "runtime-wrapper/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/text.h"

namespace vgpu::runtime {
namespace {

using testing::ElementsAre;

Arguments parse(std::string_view line) {
  std::vector<std::string> words;
  for (const std::string_view word : split(line, ' '))
    words.emplace_back(word);
  return parse_arguments(words);
}

TEST(Arguments, AreThoseOfContainerd) {
  const Arguments a = parse(
      "--root /run/containerd/runc/k8s.io --log /b/log.json --log-format json --systemd-cgroup "
      "create --bundle /b --pid-file /b/init.pid --console-socket /tmp/s abc");
  EXPECT_EQ(a.command, Command::kCreate);
  EXPECT_TRUE(a.certain);
  EXPECT_EQ(a.root, "/run/containerd/runc/k8s.io");
  EXPECT_EQ(a.log, "/b/log.json");
  EXPECT_TRUE(a.log_json);
  EXPECT_EQ(a.bundle, "/b");
  EXPECT_EQ(a.pid_file, "/b/init.pid");
  EXPECT_EQ(a.id, "abc");
}

TEST(Arguments, AreThoseOfConmon) {
  const Arguments a =
      parse("--systemd-cgroup --root=/run/runc create --bundle /b --pid-file /p abc");
  EXPECT_EQ(a.command, Command::kCreate);
  EXPECT_EQ(a.root, "/run/runc");
  EXPECT_EQ(a.log, std::nullopt);
  EXPECT_EQ(a.id, "abc");
}

class BundleForm : public testing::TestWithParam<std::string> {};

TEST_P(BundleForm, IsUnderstood) {
  const Arguments a = parse("create " + GetParam());
  EXPECT_EQ(a.bundle, "/b");
  EXPECT_EQ(a.id, "abc");
}

INSTANTIATE_TEST_SUITE_P(Lines, BundleForm,
                         testing::Values("-b /b abc", "--bundle /b abc", "-bundle /b abc",
                                         "-b=/b abc", "--bundle=/b abc", "-bundle=/b abc",
                                         "-b/b abc", "--b /b abc", "abc --bundle /b",
                                         "-b /a --bundle /b abc",
                                         "--no-pivot --bundle /b --preserve-fds 2 abc",
                                         "--bundle /b -- abc"));

TEST(Bundle, IsTheWorkingDirectoryUnlessGiven) {
  EXPECT_EQ(parse("create abc").bundle, ".");
}

struct Line {
  std::string line;
  Command command;
  std::string id;
};

class CommandOf : public testing::TestWithParam<Line> {};

TEST_P(CommandOf, IsTheFirstWordThatIsNoOption) {
  const Arguments a = parse(GetParam().line);
  EXPECT_EQ(a.command, GetParam().command);
  EXPECT_EQ(a.id, GetParam().id);
}

INSTANTIATE_TEST_SUITE_P(
    Lines, CommandOf,
    testing::Values(Line{"start abc", Command::kStart, "abc"},
                    // values that look like commands
                    Line{"--root create start abc", Command::kStart, "abc"},
                    Line{"--log=create --root run delete --force abc", Command::kDelete, "abc"},
                    Line{"create --bundle create --pid-file run start", Command::kCreate, "start"},
                    Line{"kill create 9", Command::kOther, "create"},
                    Line{"exec --process /tmp/p --detach --pid-file /tmp/pid abc", Command::kExec,
                         "abc"},
                    Line{"exec -t --user 0:0 -e A=create abc sh -c create", Command::kExec, "abc"},
                    Line{"run -d --keep -b /b abc", Command::kRun, "abc"},
                    Line{"update --resources - abc", Command::kOther, "abc"},
                    Line{"--debug=true --rootless auto features", Command::kOther, ""},
                    Line{"--version", Command::kNone, ""}, Line{"", Command::kNone, ""},
                    Line{"--root", Command::kNone, ""}));

TEST(Command, IsLookedForBehindAnOptionWeDoNotKnow) {
  const Arguments a = parse("--new-option value --log /l create --bundle /b abc");
  EXPECT_FALSE(a.certain);
  EXPECT_EQ(a.command, Command::kCreate);
  EXPECT_EQ(a.bundle, "/b");
  EXPECT_EQ(a.log, "/l");
}

TEST(SpecFile, OfCrunIsSeen) {
  EXPECT_EQ(parse("create -f /other.json -b /b abc").spec_file, "/other.json");
  EXPECT_EQ(parse("create --config=/other.json abc").spec_file, "/other.json");
}

TEST(Words, OfAProgramAreNotTheRuntimes) {
  EXPECT_THAT(parse("exec abc --bundle x").words, ElementsAre("abc"));
}

}  // namespace
}  // namespace vgpu::runtime
