// AccountsWriter: what sessions used, added up for each session and hour in a SQLite database.
//
// Threading: one thread, which may wait for the disk.
// Invariants:
// 1. An amount is in the database or in `pending_`, never in both: a transaction writes all that is
//    pending. A kill loses only what was pending.
// 2. No fault of the disk or the database reaches the caller. Amounts then stay pending, up to
//    kMostPending rows; the next call tries again. lost() counts all beyond that.
// 3. A database that a newer Tandem has made is never changed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>

#include "src/base/bytes.h"
#include "src/history/amounts.h"
#include "src/history/sqlite.h"
#include "src/history/usage.h"

namespace tandem::history {

struct AccountsOptions {
  bool everybody = false;  // all users may read the file
  int64_t keep_days = 400;
  Bytes keep_size = MiB(256);
  std::function<void(const std::string&)> say;  // a line for the log; may be empty
};

class AccountsWriter {
 public:
  static constexpr size_t kMostPending = 10'000;  // rows, each of one session and hour

  explicit AccountsWriter(AccountsOptions options) : options_(std::move(options)) {}
  ~AccountsWriter() { Close(); }
  AccountsWriter(const AccountsWriter&) = delete;
  AccountsWriter& operator=(const AccountsWriter&) = delete;

  // Makes the file and its directory where they do not exist.
  void Open(const std::string& path);
  // Adds them and writes.
  void Add(std::span<const Usage> usages);
  // Writes what is pending. Whether nothing is left.
  bool Flush();
  void Close();

  // How many of the added intervals will never be in the database.
  uint64_t lost() const { return lost_; }

 private:
  // Hour, session, begin of the session, GPU.
  using Key = std::tuple<int64_t, uint64_t, int64_t, std::string>;
  struct Row {
    std::shared_ptr<const SessionIdentity> of;  // shared: with the caller, for all its intervals
    int64_t from_ns = 0;
    int64_t to_ns = 0;
    Amounts amounts;
    uint64_t intervals = 0;
  };
  struct FileId {
    dev_t device = 0;
    ino_t number = 0;
    bool operator==(const FileId&) const = default;
  };

  void Keep(const Usage& usage);
  void DropPending();
  int Connect();
  int MakeFile();
  int Prepare();
  int Create();
  int Check();
  int Write();
  int WriteRows();
  int Prune();
  bool FileIsGone() const;
  bool SetAside();
  void SwitchOff(const std::string& why);
  void Failed(const std::string& why);
  void Worked();
  void Say(const std::string& line) const;

  const AccountsOptions options_;
  std::string path_;
  Database database_;
  FileId file_;
  std::map<Key, Row> pending_;
  int64_t pruned_hour_ = 0;  // the newest hour when the database was last pruned
  uint64_t lost_ = 0;
  uint64_t lost_before_ = 0;  // when the present failure began
  bool failing_ = false;      // and the log has said so
  bool off_ = true;           // not open, or never to be written
  std::string problem_;       // of the last call that failed, where SQLite does not know it
};

}  // namespace tandem::history
