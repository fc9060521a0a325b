// A writer that is killed at any moment: what it had written is there, once.
#include <sys/wait.h>

#include <csignal>
#include <random>

#include "src/base/testing/rounds.h"
#include "src/base/testing/seed.h"
#include "src/history/history_test.h"

namespace tandem::history {
namespace {

class AccountsCrashTest : public HistoryTest {
 protected:
  // Writes interval after interval, and says into `report` after each that it is written.
  [[noreturn]] void WriteForever(int report, int64_t from) {
    AccountsWriter writer({});
    writer.Open(path_);
    for (int64_t i = 0;; ++i) {
      writer.Add(std::vector<Usage>{Held(Session(1 + i % 7), from + i * 10)});
      if (write(report, "x", 1) != 1) _exit(1);
    }
  }

  // How many a child wrote for certain before it was killed. It is killed once it has said `count`
  // times that it has written, wherever it is then.
  int64_t RunAndKill(int64_t from, int64_t count) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) WriteForever(ends[1], from);
    close(ends[1]);
    char byte = 0;
    int64_t written = 0;
    while (written < count && read(ends[0], &byte, 1) == 1) ++written;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    while (read(ends[0], &byte, 1) == 1) ++written;
    close(ends[0]);
    return written;
  }
};

TEST_F(AccountsCrashTest, NothingWrittenIsLostOrCountedTwice) {
  const uint64_t seed = RandomSeed();
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  int64_t least = 0;
  const int64_t rounds = static_cast<int64_t>(Rounds(25));
  for (int64_t round = 0; round < rounds; ++round) {
    least += RunAndKill(kMonday + round * 100'000, static_cast<int64_t>(1 + random() % 40));
    const int64_t found = HeldSeconds(path_) / 10;
    ASSERT_GE(found, least);
    ASSERT_LE(found, least + 1) << "the one that was written when the kill came";
    least = found;
    Database database;
    std::string check;
    ASSERT_EQ(database.Open(path_, SQLITE_OPEN_READWRITE, 1000), SQLITE_OK);
    ASSERT_EQ(database.Read("PRAGMA integrity_check", &check), SQLITE_OK);
    ASSERT_EQ(check, "ok");
  }
  EXPECT_GT(least, rounds);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".broken-1"));
}

}  // namespace
}  // namespace tandem::history
