#include "src/history/event_reader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/base/json.h"

namespace tandem::history {
namespace {

class EventReaderTest : public testing::Test {
 protected:
  EventReaderTest() {
    std::string name = testing::TempDir() + "events-XXXXXX";
    directory_ = mkdtemp(name.data());
    path_ = directory_ + "/events.jsonl";
  }
  ~EventReaderTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  static std::string Line(uint64_t ns, const std::string& event, uint64_t session = 1,
                          int gpu = 0) {
    return JsonText({{"ns", ns}, {"event", event}, {"session", session}, {"gpu", gpu}}) + "\n";
  }
  void Append(const std::string& text, const std::string& suffix = "") const {
    std::ofstream(path_ + suffix, std::ios::app) << text;
  }
  // The file is full: what follows goes to the next, behind `head`.
  void Rotate(const std::string& head) const {
    for (int age = 3; age > 0; --age) {
      const std::string from = age == 1 ? path_ : path_ + "." + std::to_string(age - 1);
      std::error_code ignored;
      std::filesystem::rename(from, path_ + "." + std::to_string(age), ignored);
    }
    Append(head);
  }
  EventReader Open() const {
    Result<EventReader> reader = EventReader::Open(path_);
    EXPECT_TRUE(reader.ok()) << reader.error().message;
    return *std::move(reader);
  }
  static std::vector<uint64_t> Times(const std::vector<std::string>& lines) {
    std::vector<uint64_t> times;
    for (const std::string& line : lines) times.push_back(ParseJson(line)["ns"]);
    return times;
  }
  using Numbers = std::vector<uint64_t>;

  std::string directory_, path_;
};

TEST_F(EventReaderTest, TheNewestAreTheLast) {
  for (uint64_t i = 1; i <= 9; ++i) Append(Line(i, "grant"));
  EXPECT_EQ(Times(Open().Newest({}, 3).lines), (Numbers{7, 8, 9}));
  EXPECT_EQ(Times(Open().Newest({}, 100).lines).size(), 9u);
}

TEST_F(EventReaderTest, AReaderGoesOnWhereItWas) {
  Append(Line(1, "grant") + Line(2, "grant"));
  const EventPage first = Open().Newest({}, 10);
  EXPECT_TRUE(Open().After(first.next, {}, 10).lines.empty());
  Append(Line(3, "grant"));
  const EventPage second = Open().After(first.next, {}, 10);
  EXPECT_EQ(Times(second.lines), (Numbers{3}));
  EXPECT_FALSE(second.gap);
  const auto place = LogPlace::Parse(second.next.Text());
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(*place, second.next);
}

TEST_F(EventReaderTest, NoLineIsLostOrReadTwiceWhereFilesAreRenamed) {
  const std::string head = Line(1, "daemon") + Line(2, "session");
  Append(head + Line(3, "grant"));
  const EventPage first = Open().Newest({}, 10);
  Append(Line(4, "idle"));
  Rotate(head);
  Append(Line(5, "session", 2) + Line(6, "grant"));
  Rotate(head);
  Append(Line(7, "grant"));
  const EventPage rest = Open().After(first.next, {}, 10);
  EXPECT_EQ(Times(rest.lines), (Numbers{4, 5, 6, 7}));
  EXPECT_EQ(Times(Open().Newest({}, 10).lines), (Numbers{1, 2, 3, 4, 5, 6, 7}));
  Numbers all;
  Open().Visit([&](std::string_view line) {
    all.push_back(ParseJson(line)["ns"]);
    return true;
  });
  EXPECT_EQ(all, (Numbers{1, 2, 3, 4, 5, 6, 7}));
}

TEST_F(EventReaderTest, APlaceThatIsGoneIsSaidToBe) {
  Append(Line(1, "grant"));
  const LogPlace place = Open().Newest({}, 10).next;
  std::filesystem::rename(path_, directory_ + "/kept");  // so that its inode is not used again
  Append(Line(8, "grant"));
  const EventPage page = Open().After(place, {}, 10);
  EXPECT_TRUE(page.gap);
  EXPECT_EQ(Times(page.lines), (Numbers{8}));
}

TEST_F(EventReaderTest, PagesFollowEachOther) {
  for (uint64_t i = 1; i <= 7; ++i) Append(Line(i, "grant"));
  LogPlace place = Open().After({}, {}, 3).next;
  EXPECT_EQ(Times(Open().After(place, {}, 3).lines), (Numbers{4, 5, 6}));
  place = Open().After(place, {}, 3).next;
  EXPECT_EQ(Times(Open().After(place, {}, 3).lines), (Numbers{7}));
}

TEST_F(EventReaderTest, FiltersTakeEventsSessionsAndGpus) {
  Append(Line(1, "grant", 1, 0) + Line(2, "idle", 1, 0) + Line(3, "grant", 2, 1));
  Append("{\"ns\":4,\"event\":\"handover\",\"to\":2,\"gpu\":1}\n");
  EXPECT_EQ(Times(Open().Newest({{"grant"}, {}, {}}, 9).lines), (Numbers{1, 3}));
  EXPECT_EQ(Times(Open().Newest({{}, 2, {}}, 9).lines), (Numbers{3, 4}));
  EXPECT_EQ(Times(Open().Newest({{}, {}, 0}, 9).lines), (Numbers{1, 2}));
  EXPECT_EQ(Times(Open().Newest({{"grant", "idle"}, 1, 0}, 9).lines), (Numbers{1, 2}));
}

TEST_F(EventReaderTest, HalfALineIsNotRead) {
  Append(Line(1, "grant") + "{\"ns\":2,\"ev");
  const EventPage page = Open().Newest({}, 9);
  EXPECT_EQ(Times(page.lines), (Numbers{1}));
  Append("ent\":\"grant\"}\n");
  EXPECT_EQ(Times(Open().After(page.next, {}, 9).lines), (Numbers{2}));
}

TEST_F(EventReaderTest, LinesThatBlocksCutAreWhole) {
  const std::string name(1000, 'x');
  for (uint64_t i = 1; i <= 1000; ++i) Append(Line(i, name));  // four blocks
  EXPECT_EQ(Times(Open().Newest({}, 5000).lines).size(), 1000u);
  const Numbers last = Times(Open().Newest({}, 300).lines);
  EXPECT_EQ(last.front(), 701u);
  EXPECT_EQ(last.size(), 300u);
}

TEST_F(EventReaderTest, ALineLongerThanAnyIsSkipped) {
  Append(std::string(size_t{5} << 20, 'x') + "\n" + Line(2, "grant"));
  EXPECT_EQ(Times(Open().Newest({}, 9).lines), (Numbers{2}));
}

TEST_F(EventReaderTest, GarbageIsSkippedByAFilter) {
  Append("garbage\n[]\n{\"event\":7}\n" + Line(2, "grant"));
  EXPECT_EQ(Times(Open().Newest({{"grant"}, {}, {}}, 9).lines), (Numbers{2}));
}

TEST_F(EventReaderTest, NoLogIsSaidToBeNone) {
  const auto none = EventReader::Open(path_);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  std::filesystem::create_directory(path_);
  EXPECT_FALSE(EventReader::Open(path_).ok());
}

TEST(LogPlaceTest, OnlyPlacesAreRead) {
  EXPECT_TRUE(LogPlace::Parse("12-0").has_value());
  for (const char* text : {"", "12", "-", "12-", "-3", "12-x", "12-3-4", " 1-2", "1--2"}) {
    EXPECT_FALSE(LogPlace::Parse(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace tandem::history
