// The child is this test itself, serving or hanging as the test says by the directory's name.
#include "src/daemon/spill_store.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "src/daemon/daemon_test.h"

namespace tandem::daemon {
namespace {

class SpillStoreTest : public DaemonTest {
 protected:
  SpillStoreTest() {
    spill_dir_ = dir_ + "/spill";
    std::filesystem::create_directory(spill_dir_);
  }

  // A program in the place of the child: the real one behind a shell that tells its number.
  std::string Program(const std::string& script) {
    const std::string path = dir_ + "/child";
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    chmod(path.c_str(), 0755);
    return path;
  }
  // Of the process that makes the files; with a sleeping file system that is stopped.
  pid_t Child() const {
    pid_t child = 0;
    std::ifstream(dir_ + "/number") >> child;
    return child;
  }
  std::unique_ptr<SpillStore> Open() {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    const auto tandemd = std::filesystem::path(self).parent_path().parent_path() / "tandemd";
    auto store = SpillStore::Open(
        spill_dir_, MiB(64),
        Program("echo $$ > " + dir_ + "/number\nexec " + tandemd.string() + " --spill-keeper"));
    EXPECT_TRUE(store.ok()) << store.error().message;
    return store.ok() ? *std::move(store) : nullptr;
  }
  void StartWithFiles() {
    auto store = Open();
    ASSERT_NE(store, nullptr);
    store_ = store.get();
    service::Spill spill{spill_dir_, MiB(64)};
    spill.available = [this] { return store_->available(); };
    spill.ask = [this](uint64_t id, const service::SpillOwner& owner, unsigned uid, unsigned gid) {
      return store_->Ask(id, owner, uid, gid, MonotonicNow());
    };
    spill.end = [this](int pid) { store_->End(pid, MonotonicNow()); };
    Start({}, {}, std::move(spill), std::move(store));
  }
  static Status SendRegister(wire::Channel& channel) {
    wire::Register hello{"0.1", 0, "GPU-1", "test", 0, 0, 0};
    hello.spills = 1;
    return channel.Send(hello);
  }
  SpillStore::News Await(SpillStore& store) {
    pollfd entry{store.fd(), POLLIN, 0};
    EXPECT_EQ(poll(&entry, 1, static_cast<int>(kPatience.ns / 1000000)), 1);
    return store.Take(MonotonicNow());
  }

  std::string spill_dir_;
  SpillStore* store_ = nullptr;  // the server's
};

TEST_F(SpillStoreTest, AFileComesAndIsLookedAt) {
  const auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_GT(store->available(), Bytes());
  const Instant now = MonotonicNow();
  ASSERT_TRUE(store->Ask(7, {11, 0}, geteuid(), getegid(), now));
  ASSERT_TRUE(store->Ask(8, {12, 0}, geteuid(), getegid(), now));
  std::vector<SpillStore::File> files;
  while (files.size() < 2) {
    for (SpillStore::File& each : Await(*store).files) files.push_back(std::move(each));
  }
  EXPECT_EQ(files[0].request, 7u);
  EXPECT_EQ(files[1].request, 8u);
  ASSERT_TRUE(files[0].file && files[1].file);
  ASSERT_EQ(fallocate(files[1].file.get(), FALLOC_FL_KEEP_SIZE, 0, 1 << 20), 0);
  store->OnTime(now + SpillStore::kPeriod);
  service::SpillSizes sizes = Await(*store).sizes.value();
  EXPECT_EQ(sizes.at({11, 0}), Bytes());
  EXPECT_EQ(sizes.at({12, 0}), MiB(1));
}

TEST_F(SpillStoreTest, WhileTheFileSystemHangsThereAreNoFilesAndNoRoom) {
  const auto store = Open();
  ASSERT_NE(store, nullptr);
  ASSERT_EQ(kill(Child(), SIGSTOP), 0);
  const Instant now = MonotonicNow();
  EXPECT_TRUE(store->Ask(7, {11, 0}, geteuid(), getegid(), now));
  EXPECT_TRUE(store->Ask(8, {12, 0}, geteuid(), getegid(), now));
  EXPECT_EQ(store->wake(), now + SpillStore::kPatience);
  EXPECT_TRUE(store->OnTime(now + SpillStore::kPatience - Milliseconds(1)).files.empty());
  const SpillStore::News news = store->OnTime(now + SpillStore::kPatience);
  ASSERT_EQ(news.files.size(), 2u);
  EXPECT_FALSE(news.files[0].file || news.files[1].file);
  EXPECT_EQ(store->available(), Bytes());
  EXPECT_FALSE(store->Ask(9, {13, 0}, geteuid(), getegid(), now));
  // It answers again: the first file comes too late.
  ASSERT_EQ(kill(Child(), SIGCONT), 0);
  EXPECT_TRUE(Await(*store).files.empty());
  EXPECT_GT(store->available(), Bytes());
  ASSERT_TRUE(store->Ask(9, {13, 0}, geteuid(), getegid(), now));
  EXPECT_TRUE(Await(*store).files.at(0).file);
}

TEST_F(SpillStoreTest, AnotherChildTakesThePlaceOfOneThatEnds) {
  const auto store = Open();
  ASSERT_NE(store, nullptr);
  ASSERT_EQ(kill(Child(), SIGSTOP), 0);
  const Instant now = MonotonicNow();
  ASSERT_TRUE(store->Ask(7, {11, 0}, geteuid(), getegid(), now));
  ASSERT_EQ(kill(Child(), SIGKILL), 0);
  Await(*store);
  EXPECT_EQ(store->fd(), -1);
  const SpillStore::News news = store->OnTime(now);
  ASSERT_EQ(news.files.size(), 1u);
  EXPECT_FALSE(news.files[0].file);
  EXPECT_FALSE(store->Ask(8, {11, 0}, geteuid(), getegid(), now));
  store->OnTime(MonotonicNow() + SpillStore::kRest);
  ASSERT_GE(store->fd(), 0);
  Await(*store);
  ASSERT_TRUE(store->Ask(8, {11, 0}, geteuid(), getegid(), now));
  EXPECT_TRUE(Await(*store).files.at(0).file);
}

TEST_F(SpillStoreTest, ADirectoryThatIsNotThereIsSaidAtTheStart) {
  std::filesystem::remove(spill_dir_);
  const auto store = SpillStore::Open(spill_dir_, MiB(8), Program("exit 1"));
  EXPECT_FALSE(store.ok());
}

// The loop turns on the test's own thread: were it to wait for the file system, the test would end
// in its own time limit.
TEST_F(SpillStoreTest, OnlyTheSessionThatNeedsAFileWaitsForTheFileSystem) {
  StartWithFiles();
  ASSERT_EQ(kill(Child(), SIGSTOP), 0);
  wire::Channel waits = Connect();
  ASSERT_TRUE(SendRegister(waits).ok());
  EXPECT_EQ(Ask("status")["gpus"][0]["uuid"], "GPU-1");
  EXPECT_EQ(waits.Receive(Duration()).error().code, ErrorCode::kNotFound);
  ASSERT_EQ(kill(Child(), SIGCONT), 0);
  Expect<wire::Registered>(waits);
  EXPECT_EQ(waits.TakeFds().size(), 3u);
}

TEST_F(SpillStoreTest, OneThatWaitsTooLongHasNoFile) {
  StartWithFiles();
  ASSERT_EQ(kill(Child(), SIGSTOP), 0);
  wire::Channel waits = Connect();
  ASSERT_TRUE(SendRegister(waits).ok());
  Expect<wire::Registered>(waits);
  EXPECT_EQ(waits.TakeFds().size(), 2u);
  kill(Child(), SIGCONT);
}

}  // namespace
}  // namespace tandem::daemon
