#include "limiter/host_page.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "limiter/shared_word.h"
#include "limiter/sys.h"
#include "test/unit/limiter/files.h"

namespace vgpu::limiter {
namespace {

constexpr char kFirst[] = "5c2f0d5e-8c1f-4c3b-9d55-0a1f6f3e7b10";
constexpr char kSecond[] = "9be4a7c2-31d0-47a6-8f0e-d26b51c4e9a3";
constexpr std::uint64_t kNow = 1000 * sys::kSecond;

struct Reading {
  explicit Reading(const TestHostPage& file, const char* uuid = kFirst) {
    EXPECT_EQ(page.open(file.path()), HostPage::Opening::kOk);
    finding = page.find(uuid, kNow, &terms);
  }
  HostPage page;
  HostPage::Finding finding;
  DeviceTerms terms;
};

TEST(HostPage, TellsTheTermsOfACardByItsUuid) {
  const TestHostPage file;
  file.write({{kFirst, 3000}, {kSecond, 5000}});
  const Reading reading(file, kSecond);
  ASSERT_EQ(reading.finding, HostPage::Finding::kFound);
  EXPECT_EQ(reading.terms.index, 1U);
  EXPECT_EQ(reading.terms.limit, 5000U);
}

TEST(HostPage, KnowsNothingOfACardThatIsNotNamed) {
  const TestHostPage file;
  file.write({{kFirst, 3000}});
  EXPECT_EQ(Reading(file, kSecond).finding, HostPage::Finding::kUnknownDevice);
}

TEST(HostPage, FollowsTheHostWhileMapped) {
  const TestHostPage file;
  file.write({{kFirst, 3000}});
  Reading reading(file);
  file.write({{kFirst, 7000}});
  ASSERT_EQ(reading.page.find(kFirst, kNow, &reading.terms), HostPage::Finding::kFound);
  EXPECT_EQ(reading.terms.limit, 7000U);
}

TEST(HostPage, IsTornWhenTheCurrentCopyDoesNotCheck) {
  const TestHostPage file;
  file.write({{kFirst, 3000}});
  file.write({{kFirst, 4000}});
  file.page().copies[0].devices[0].memory_limit = 9000;
  EXPECT_EQ(Reading(file).finding, HostPage::Finding::kTorn);
}

TEST(HostPage, IsTornWhenTheCurrentWordNamesAnOlderCopy) {
  const TestHostPage file;
  file.write({{kFirst, 9000}});
  file.write({{kFirst, 3000}});
  store(file.page().current, std::uint64_t{2} << 1U | 1U);
  EXPECT_EQ(Reading(file).finding, HostPage::Finding::kTorn);
}

TEST(HostPage, IsTornWhenNothingWasEverWritten) {
  const TestHostPage file;
  file.page().copies[0].checksum = 1;
  EXPECT_EQ(Reading(file).finding, HostPage::Finding::kTorn);
}

TEST(HostPage, BelievesAnObservationForTenSeconds) {
  const TestHostPage file;
  file.write({{kFirst, 3000, 2000}});
  file.beat(kNow - 9 * sys::kSecond);
  EXPECT_EQ(Reading(file).terms.observed_bytes, 2000U);
  file.beat(kNow - 10 * sys::kSecond);
  EXPECT_EQ(Reading(file).terms.observed_bytes, 0U);
}

TEST(HostPage, BelievesNoObservationWithoutAHeartbeat) {
  const TestHostPage file;
  file.write({{kFirst, 3000, 2000}});
  EXPECT_EQ(Reading(file).terms.observed_bytes, 0U);
}

TEST(HostPage, SaysWhenNewMemoryIsHeldBack) {
  const TestHostPage file;
  file.write({{kFirst, 3000, 0, VGPU_DEVICE_HOLD}});
  EXPECT_TRUE(Reading(file).terms.hold);
}

TEST(HostPage, IsMissingWhereThereIsNoFile) {
  HostPage page;
  EXPECT_EQ(page.open("/nonexistent/host"), HostPage::Opening::kMissing);
}

TEST(HostPage, IsRefusedWhenItIsTooShort) {
  const TestHostPage file;
  file.truncate(sizeof(vgpu_host_page) - 1);
  HostPage page;
  EXPECT_EQ(page.open(file.path()), HostPage::Opening::kInvalid);
}

TEST(HostPage, IsRefusedWithAnotherMagic) {
  const TestHostPage file;
  file.page().magic[0] = 'X';
  HostPage page;
  EXPECT_EQ(page.open(file.path()), HostPage::Opening::kInvalid);
}

TEST(HostPage, IsAcceptedInANewerVersionThatIsLarger) {
  const TestHostPage file;
  file.write({{kFirst, 3000}});
  file.page().version = VGPU_HOST_VERSION + 1;
  file.page().size = sizeof(vgpu_host_page) + 4096;
  EXPECT_EQ(Reading(file).finding, HostPage::Finding::kFound);
}

// The writer of the test keeps context and limit equal, so that a mixture of two generations shows.
TEST(HostPage, NeverMixesTwoGenerations) {
  const TestHostPage file;
  file.write({{kFirst, 1, 0, 0, 1}});
  Reading reading(file);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 2; !stop.load(); ++i) {
      file.write({{kFirst, i, 0, 0, i}});
    }
  });
  int mixed = 0;
  for (int i = 0; i < 20000; ++i) {
    const bool found = reading.page.find(kFirst, kNow, &reading.terms) == HostPage::Finding::kFound;
    mixed += found && reading.terms.limit != reading.terms.context_bytes ? 1 : 0;
  }
  stop.store(true);
  writer.join();
  EXPECT_EQ(mixed, 0);
}

}  // namespace
}  // namespace vgpu::limiter
