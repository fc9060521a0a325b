#include "src/history/accounts_writer.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>

#include "src/base/unique_fd.h"
#include "src/history/accounts_schema.h"
#include "src/history/local_time.h"

namespace tandem::history {
namespace {

namespace fs = std::filesystem;

constexpr int kPatienceMs = 250;
constexpr int kMostSetAside = 9;
constexpr int64_t kDay = 24 * kHour;
// Of the rows, the oldest: how many leave at once where the database is too large.
constexpr int kPruneParts = 32;

// Whether the file is no database that SQLite can use.
bool IsDamage(int code) {
  return code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
}

int64_t Stored(uint64_t count) {
  return static_cast<int64_t>(
      std::min(count, static_cast<uint64_t>(std::numeric_limits<int64_t>::max())));
}

int64_t HourOf(int64_t unix_ns) {
  const int64_t hour_ns = kHour * kNsInSecond;
  const int64_t rest = (unix_ns % hour_ns + hour_ns) % hour_ns;
  return (unix_ns - rest) / kNsInSecond;
}

bool MakeDirectories(const fs::path& directory, mode_t mode) {
  if (directory.empty() || mkdir(directory.c_str(), mode) == 0 || errno == EEXIST) return true;
  return errno == ENOENT && directory.has_relative_path() &&
         MakeDirectories(directory.parent_path(), mode) && mkdir(directory.c_str(), mode) == 0;
}

}  // namespace

void AccountsWriter::Open(const std::string& path) {
  Close();
  path_ = path;
  off_ = false;
  Flush();
}

void AccountsWriter::Add(std::span<const Usage> usages) {
  for (const Usage& usage : usages) Keep(usage);
  Flush();
}

void AccountsWriter::Keep(const Usage& usage) {
  const SessionIdentity& of = *usage.of;
  const int64_t hour = HourOf(usage.from_unix_ns);
  const Key key{hour, of.session, of.started_unix_ns, of.gpu};
  auto at = pending_.find(key);
  if (off_ || (at == pending_.end() && pending_.size() >= kMostPending)) {
    ++lost_;
    return;
  }
  // A clock that was set back, or across the hour, does not make a row reach beyond its hour.
  const int64_t to_ns =
      std::clamp(usage.to_unix_ns, usage.from_unix_ns, (hour + kHour) * kNsInSecond);
  if (at == pending_.end()) {
    at = pending_.emplace(key, Row{usage.of, usage.from_unix_ns, to_ns, {}}).first;
  }
  Row& row = at->second;
  row.from_ns = std::min(row.from_ns, usage.from_unix_ns);
  row.to_ns = std::max(row.to_ns, to_ns);
  row.amounts += AmountsOf(usage);
  ++row.intervals;
}

bool AccountsWriter::Flush() {
  if (off_) return false;
  if (FileIsGone()) {
    database_.Close();
    Say(fmt::format("the accounts in {} were removed; new ones begin", path_));
  }
  for (bool may_set_aside : {true, false}) {
    problem_.clear();
    int code = database_.IsOpen() ? SQLITE_OK : Connect();
    if (code == SQLITE_OK) code = Write();
    if (code == SQLITE_OK) {
      Worked();
      return true;
    }
    if (off_) return false;
    if (problem_.empty()) problem_ = path_ + ": " + database_.Message();
    if (!IsDamage(code) || !may_set_aside || !SetAside()) break;
  }
  Failed(problem_);
  return false;
}

void AccountsWriter::Close() {
  const uint64_t lost = lost_;
  if (!Flush()) DropPending();
  if (lost_ > lost) Say(fmt::format("{} intervals are missing in the accounts", lost_ - lost));
  database_.Close();
  off_ = true;
}

void AccountsWriter::DropPending() {
  for (const auto& [key, row] : pending_) lost_ += row.intervals;
  pending_.clear();
}

int AccountsWriter::Connect() {
  int code = MakeFile();
  if (code == SQLITE_OK) code = database_.Open(path_, SQLITE_OPEN_READWRITE, kPatienceMs);
  if (code == SQLITE_OK) code = Prepare();
  // Damage and faults leave no half-open connection; problem_ keeps what it said.
  if (code != SQLITE_OK && database_.IsOpen()) {
    if (problem_.empty()) problem_ = path_ + ": " + database_.Message();
    database_.Close();
  }
  return code;
}

// With the mode that SQLite then also gives to the files beside it.
int AccountsWriter::MakeFile() {
  const fs::path path(path_);
  if (!MakeDirectories(path.parent_path(), options_.everybody ? 0755 : 0700)) {
    problem_ = fmt::format("{}: {}", path.parent_path().string(), std::strerror(errno));
    return SQLITE_CANTOPEN;
  }
  const mode_t mode = options_.everybody ? 0644 : 0600;
  const UniqueFd file(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0 ||
      ((info.st_mode & 0777) != mode && fchmod(file.get(), mode) != 0)) {
    problem_ = fmt::format("{}: {}", path_, std::strerror(errno));
    return SQLITE_CANTOPEN;
  }
  file_ = {info.st_dev, info.st_ino};
  return SQLITE_OK;
}

int AccountsWriter::Prepare() {
  int64_t format = 0;
  int code = database_.Read("PRAGMA user_version", &format);
  if (code != SQLITE_OK) return code;
  if (format > kAccountsFormat) {
    SwitchOff(fmt::format("a newer Tandem has written {} (format {}, and this one knows {})", path_,
                          format, kAccountsFormat));
    return SQLITE_ERROR;
  }
  // The first counts only before the first table is made: the file shrinks when rows leave.
  code = database_.Run(
      "PRAGMA auto_vacuum = INCREMENTAL;"
      "PRAGMA journal_mode = WAL;"
      "PRAGMA synchronous = NORMAL;"
      "PRAGMA journal_size_limit = 4194304");
  if (code == SQLITE_OK) code = format == 0 ? Create() : Check();
  return code;
}

int AccountsWriter::Create() {
  int code = database_.Run("BEGIN IMMEDIATE");
  int64_t format = 0;  // another daemon may have been faster
  if (code == SQLITE_OK) code = database_.Read("PRAGMA user_version", &format);
  if (code == SQLITE_OK && format == 0) code = database_.Run(kCreateAccounts);
  if (code == SQLITE_OK) code = database_.Run("COMMIT");
  return code;
}

int AccountsWriter::Check() {
  std::string found;
  const int code = database_.Read("PRAGMA quick_check(1)", &found);
  if (code != SQLITE_OK || found == "ok") return code;
  problem_ = path_ + ": " + found;
  return SQLITE_CORRUPT;
}

int AccountsWriter::Write() {
  if (pending_.empty()) return SQLITE_OK;
  int code = database_.Run("BEGIN IMMEDIATE");
  if (code == SQLITE_OK) code = WriteRows();
  if (code == SQLITE_OK) code = database_.Run("COMMIT");
  if (code != SQLITE_OK) {
    problem_ = path_ + ": " + database_.Message();
    database_.Run("ROLLBACK");
    return code;
  }
  const int64_t newest = std::get<0>(pending_.rbegin()->first);
  pending_.clear();
  if (newest <= pruned_hour_) return SQLITE_OK;
  pruned_hour_ = newest;
  code = Prune();
  return IsDamage(code) ? code : SQLITE_OK;
}

int AccountsWriter::WriteRows() {
  Statement add = database_.Prepare(kAddToAccounts);
  for (const auto& [key, row] : pending_) {
    const SessionIdentity& of = *row.of;
    const Amounts& amounts = row.amounts;
    int place = 0;
    const auto bind = [&](const auto&... values) { (add.Bind(++place, values), ...); };
    bind(std::get<0>(key), Stored(of.session), of.started_unix_ns, of.gpu, int64_t{of.gpu_index},
         int64_t{of.uid}, of.user, of.project, of.run, of.program, int64_t{of.pid}, row.from_ns,
         row.to_ns);
    bind(Stored(amounts.held_ns), Stored(amounts.active_ns), Stored(amounts.waited_ns),
         amounts.allocated_byte_s, amounts.resident_byte_s, amounts.swapped_byte_s,
         Stored(amounts.handovers), Stored(amounts.out_bytes), Stored(amounts.in_bytes));
    if (const int code = add.Step(); code != SQLITE_DONE) return code;
    add.Reset();
  }
  return SQLITE_OK;
}

// Of the database's own newest hour: it does not depend on today's clock.
int AccountsWriter::Prune() {
  const std::string too_old =
      fmt::format("DELETE FROM usage WHERE hour < {}", pruned_hour_ - options_.keep_days * kDay);
  int code = database_.Run(too_old.c_str());
  const std::string oldest = fmt::format(
      "DELETE FROM usage WHERE hour <= (SELECT hour FROM usage ORDER BY hour LIMIT 1 "
      "OFFSET (SELECT count(*) / {} FROM usage)) AND hour < (SELECT max(hour) FROM usage)",
      kPruneParts);
  for (int part = 0; code == SQLITE_OK && part < kPruneParts; ++part) {
    int64_t size = 0;
    code = database_.Read(
        "SELECT (page_count - freelist_count) * page_size "
        "FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
        &size);
    if (code != SQLITE_OK || static_cast<uint64_t>(size) <= options_.keep_size.count) break;
    code = database_.Run(oldest.c_str());
    if (database_.Changes() == 0) break;
  }
  return code == SQLITE_OK ? database_.Run("PRAGMA incremental_vacuum") : code;
}

bool AccountsWriter::FileIsGone() const {
  struct stat info {};
  if (!database_.IsOpen()) return false;
  if (stat(path_.c_str(), &info) != 0) return errno == ENOENT || errno == ENOTDIR;
  return FileId{info.st_dev, info.st_ino} != file_;
}

// With its log of writes, for people who want to save what can be read.
bool AccountsWriter::SetAside() {
  database_.Close();
  std::error_code error;
  std::string aside;
  for (int i = 1; i <= kMostSetAside; ++i) {
    aside = fmt::format("{}.broken-{}", path_, i);
    if (!fs::exists(aside, error)) break;
  }
  fs::rename(path_, aside, error);
  if (error) return false;
  fs::rename(path_ + "-wal", aside + "-wal", error);
  fs::remove(path_ + "-shm", error);
  Say(fmt::format("the accounts are damaged ({}); they are now {}, and new ones begin", problem_,
                  aside));
  return true;
}

void AccountsWriter::SwitchOff(const std::string& why) {
  off_ = true;
  DropPending();
  Say(fmt::format("no accounts are kept: {}; update this tandemd, or move the file away", why));
}

void AccountsWriter::Failed(const std::string& why) {
  if (std::exchange(failing_, true)) return;
  lost_before_ = lost_;
  Say(fmt::format("cannot write the accounts: {}; they wait in memory until it is possible", why));
}

void AccountsWriter::Worked() {
  if (!std::exchange(failing_, false)) return;
  const uint64_t lost = lost_ - lost_before_;
  Say(lost == 0 ? std::string("the accounts are written again; nothing was lost")
                : fmt::format("the accounts are written again; {} intervals were lost", lost));
}

void AccountsWriter::Say(const std::string& line) const {
  if (options_.say) options_.say(line);
}

}  // namespace tandem::history
