#include "src/base/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tandem {
namespace {

using Json = nlohmann::json;

TEST(JsonTest, WhatIsWrittenIsRead) {
  const Json json = {{"name", "Zoë"}, {"sizes", {1, 2.5, nullptr}}};
  EXPECT_EQ(JsonText(json), R"({"name":"Zoë","sizes":[1,2.5,null]})");
  EXPECT_EQ(AsciiJson(json), R"({"name":"Zo\u00eb","sizes":[1,2.5,null]})");
  EXPECT_EQ(JsonText({{"a", 1}}, 2), "{\n  \"a\": 1\n}");
  EXPECT_EQ(ParseJson(JsonText(json)), json);
  EXPECT_EQ(ParseJson(AsciiJson(json)), json);
}

TEST(JsonTest, WhatIsNoJsonIsDiscarded) {
  for (const char* text : {"", "{", "[1,]", "nul", "{} {}", "\"\xff\""}) {
    EXPECT_TRUE(ParseJson(text).is_discarded()) << text;
  }
}

TEST(JsonTest, BytesThatAreNotUtf8AreReplaced) {
  const Json json =
      "a\xff"
      "b";
  EXPECT_EQ(JsonText(json), "\"a\uFFFDb\"");
  EXPECT_EQ(AsciiJson(json), R"("a\ufffdb")");
}

}  // namespace
}  // namespace tandem
