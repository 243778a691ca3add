#include "common/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vgpu {
namespace {

class JsonKeeps : public testing::TestWithParam<std::string> {};

TEST_P(JsonKeeps, EveryByteOfACompactText) {
  const auto json = Json::parse(GetParam());
  ASSERT_TRUE(json) << json.error().message;
  EXPECT_EQ(json->text(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Texts, JsonKeeps,
                         testing::Values("{}", "[]", "null", "true", R"({"b":1,"a":2})",
                                         "18446744073709551615", "9223372036854775807",
                                         "-9223372036854775808", "1.50", "1e10", "0.1",
                                         "36893488147419103232", R"("\u0000\u001f\"\\/é€😀")",
                                         R"({"":{"":[]}})", R"([1,-1,"x",false,null,{"a":[{}]}])"));

class JsonRefuses : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(JsonRefuses, WithItsReason) {
  const auto json = Json::parse(GetParam().first);
  ASSERT_FALSE(json);
  EXPECT_THAT(json.error().message, testing::HasSubstr(GetParam().second));
}

INSTANTIATE_TEST_SUITE_P(
    Texts, JsonRefuses,
    testing::Values(std::pair{R"({"a":1,"b":2,"a":3})", "key 'a' appears twice"},
                    std::pair{R"([{"x":{"a":1,"a":1}}])", "key 'a' appears twice"},
                    std::pair{R"({"a":1,"\u0061":2})", "key 'a' appears twice"},
                    std::pair{"", "not valid JSON"}, std::pair{"{", "not valid JSON"},
                    std::pair{"{} {}", "not valid JSON"}, std::pair{"[1,]", "not valid JSON"},
                    std::pair{"01", "not valid JSON"}, std::pair{"NaN", "not valid JSON"},
                    std::pair{"1e999", "not valid JSON"}, std::pair{"\"\xff\"", "not valid JSON"},
                    std::pair{"\"\xc0\xaf\"", "not valid JSON"},
                    std::pair{"\"\\ud800\"", "not valid JSON"},
                    std::pair{"\"\n\"", "not valid JSON"}, std::pair{"/**/1", "not valid JSON"},
                    std::pair{"\xEF\xBB\xBF{}", "byte order"},
                    std::pair{std::string(65, '[') + std::string(65, ']'), "deeper than 64"}));

TEST(Json, TakesSixtyFourLevels) {
  EXPECT_TRUE(Json::parse(std::string(64, '[') + std::string(64, ']')));
}

TEST(Json, RefusesATextBeyondTheLimitItWasGiven) {
  EXPECT_FALSE(Json::parse("[1,2]", 4));
}

TEST(Json, DoesNotTakeANumberForAnotherKind) {
  EXPECT_EQ(Json::parse("18446744073709551615")->integer(), std::nullopt);
  EXPECT_EQ(Json::parse("-1")->natural(), std::nullopt);
  EXPECT_EQ(Json::parse("1.0")->natural(), std::nullopt);
  EXPECT_EQ(Json::parse("18446744073709551616")->natural(), std::nullopt);
  EXPECT_EQ(Json::parse("7")->natural(), 7U);
}

TEST(Json, SetsInPlaceAndAppendsWhatIsNew) {
  Json json = *Json::parse(R"({"a":1,"b":2})");
  json.set("a", Json("x"));
  json.set("c", Json(true));
  json.remove("b");
  EXPECT_EQ(json.text(), R"({"a":"x","c":true})");
}

}  // namespace
}  // namespace vgpu
