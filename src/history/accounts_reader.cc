#include "src/history/accounts_reader.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "src/history/accounts_schema.h"
#include "src/history/local_time.h"
#include "src/history/sqlite.h"

namespace tandem::history {
namespace {

constexpr int kReadPatienceMs = 2000;

// A time by its second, so that it sorts as it came; all else by its text.
using KeyValue = std::pair<int64_t, std::string>;
using SessionKey = std::tuple<int64_t, int64_t, std::string>;  // number, begin, GPU

// One session in one hour, or in the part of it that lies in one day.
struct Piece {
  int64_t hour = 0;
  int64_t from_ns = 0;
  int64_t to_ns = 0;
  SessionKey session;
  std::string gpu, user, project, run;
  Amounts amounts;
};

// As part of a URI.
std::string UriOf(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '/' || c == '.' || c == '-' || c == '_';
    uri += plain ? std::string(1, c) : fmt::format("%{:02x}", static_cast<unsigned char>(c));
  }
  return uri;
}

uint64_t Count(Statement* row, int column) {
  return static_cast<uint64_t>(std::max<int64_t>(row->Integer(column), 0));
}

// The part of `whole` in [from_ns, to_ns); a session's hour without length is at its begin.
std::optional<Piece> Cut(const Piece& whole, int64_t from_ns, int64_t to_ns) {
  Piece piece = whole;
  piece.from_ns = std::max(whole.from_ns, from_ns);
  piece.to_ns = std::min(whole.to_ns, to_ns);
  if (whole.to_ns <= whole.from_ns) {
    if (whole.from_ns < from_ns || whole.from_ns >= to_ns) return std::nullopt;
    return piece;
  }
  if (piece.from_ns >= piece.to_ns) return std::nullopt;
  const auto part = [&](int64_t at_ns) {
    return static_cast<double>(at_ns - whole.from_ns) /
           static_cast<double>(whole.to_ns - whole.from_ns);
  };
  piece.amounts = Part(whole.amounts, part(piece.from_ns), part(piece.to_ns));
  return piece;
}

bool IsTime(AccountsKey key) {
  return key == AccountsKey::kHour || key == AccountsKey::kDay;
}

// Adds pieces up, by the keys of the query.
class Sums {
 public:
  explicit Sums(const AccountsQuery& query)
      : query_(query),
        by_day_(std::count(query.by.begin(), query.by.end(), AccountsKey::kDay) > 0) {}

  // REQUIRES: the piece lies in the interval.
  void Add(const Piece& piece) {
    if (!by_day_) return AddTo(piece, 0);
    for (int64_t from_ns = piece.from_ns;;) {
      const int64_t day = DayOf(from_ns);
      const int64_t next_ns = day_end_ * kNsInSecond;
      if (const auto cut = Cut(piece, from_ns, next_ns)) AddTo(*cut, day);
      if (next_ns >= piece.to_ns) return;
      from_ns = next_ns;
    }
  }

  std::vector<AccountsRow> Rows(size_t gpus, int64_t begin_ns) const {
    std::vector<AccountsRow> rows;
    for (const auto& [keys, group] : groups_) {
      AccountsRow& row = rows.emplace_back(RowOf(group));
      int64_t from_ns = begin_ns, to_ns = query_.until_ns;
      size_t cards = gpus;
      for (size_t i = 0; i < keys.size(); ++i) {
        const auto [second, text] = keys[i];
        row.keys.push_back(IsTime(query_.by[i]) ? LocalTime(second) : text);
        if (query_.by[i] == AccountsKey::kGpu) cards = 1;
        if (!IsTime(query_.by[i])) continue;
        const int64_t end =
            query_.by[i] == AccountsKey::kDay ? DayBegin(second, 1) : second + kHour;
        from_ns = std::max(from_ns, second * kNsInSecond);
        to_ns = std::min(to_ns, end * kNsInSecond);
      }
      SetShare(&row, cards, to_ns - from_ns);
    }
    if (query_.by.size() == 1 && !IsTime(query_.by[0])) {
      std::stable_sort(rows.begin(), rows.end(), [](const AccountsRow& a, const AccountsRow& b) {
        return a.amounts.held_ns > b.amounts.held_ns;
      });
    }
    return rows;
  }

  AccountsRow Sum(size_t gpus, int64_t begin_ns) const {
    AccountsRow sum = RowOf(all_);
    SetShare(&sum, gpus, query_.until_ns - begin_ns);
    return sum;
  }

 private:
  struct Group {
    Amounts amounts;
    std::set<SessionKey> sessions;
  };

  static AccountsRow RowOf(const Group& group) {
    AccountsRow row;
    row.amounts = group.amounts;
    row.sessions = group.sessions.size();
    return row;
  }

  static void SetShare(AccountsRow* row, size_t gpus, int64_t length_ns) {
    const double time = static_cast<double>(gpus) * static_cast<double>(length_ns);
    row->share = time > 0 ? static_cast<double>(row->amounts.held_ns) / time : 0;
  }

  int64_t DayOf(int64_t ns) {
    const int64_t second = ns / kNsInSecond;
    if (second < day_begin_ || second >= day_end_) {
      day_begin_ = DayBegin(second);
      // Where summer time skips midnight, the library may answer an hour too early.
      day_end_ = std::max(DayBegin(second, 1), second + 1);
    }
    return day_begin_;
  }

  void AddTo(const Piece& piece, int64_t day) {
    std::vector<KeyValue> keys;
    for (const AccountsKey key : query_.by) {
      switch (key) {
        case AccountsKey::kUser:
          keys.emplace_back(0, piece.user);
          break;
        case AccountsKey::kProject:
          keys.emplace_back(0, piece.project);
          break;
        case AccountsKey::kRun:
          keys.emplace_back(0, piece.run);
          break;
        case AccountsKey::kGpu:
          keys.emplace_back(0, piece.gpu);
          break;
        case AccountsKey::kHour:
          keys.emplace_back(piece.hour, "");
          break;
        case AccountsKey::kDay:
          keys.emplace_back(day, "");
          break;
      }
    }
    for (Group* group : {&groups_[std::move(keys)], &all_}) {
      group->amounts += piece.amounts;
      group->sessions.insert(piece.session);
    }
  }

  const AccountsQuery& query_;
  const bool by_day_;
  int64_t day_begin_ = 0, day_end_ = 0;  // the last that was asked for
  std::map<std::vector<KeyValue>, Group> groups_;
  Group all_;
};

class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  Status Open() {
    if (faccessat(AT_FDCWD, path_.c_str(), R_OK, AT_EACCESS) != 0) return CannotRead(errno);
    const std::string uri = UriOf(path_);
    constexpr int kFlags = SQLITE_OPEN_READONLY | SQLITE_OPEN_URI;
    int64_t format = 0;
    int code = OpenAs(uri, kFlags, &format);
    // Without a log of writes no daemon has it open, and all is in the file. A user who may not
    // write to the directory can then read it only so.
    const bool no_log = access((path_ + "-wal").c_str(), F_OK) != 0;
    if ((code == SQLITE_CANTOPEN || code == SQLITE_READONLY) && no_log) {
      code = OpenAs(uri + "?immutable=1", kFlags, &format);
    }
    if (code != SQLITE_OK) return Failed(code);
    if (format > kAccountsFormat) {
      return Error{ErrorCode::kVersion,
                   fmt::format("a newer Tandem has written {} (format {}, and this one knows {}); "
                               "update this tandem",
                               path_, format, kAccountsFormat)};
    }
    if (format == kAccountsFormat) return {};
    return Error{ErrorCode::kInvalid, path_ + " has no accounts of Tandem's in it"};
  }

  // Calls `add` with each session's hours that touch the interval.
  Status ForEach(const AccountsQuery& query, const auto& add) {
    Statement rows = database_.Prepare(
        "SELECT hour, from_ns, to_ns, session, started_ns, gpu, gpu_index, uid, user, project, "
        "run, held_ns, active_ns, waited_ns, allocated_byte_s, resident_byte_s, swapped_byte_s, "
        "handovers, out_bytes, in_bytes FROM usage WHERE hour > ? AND hour < ?");
    rows.Bind(1, query.since_ns / kNsInSecond - kHour - 1);
    rows.Bind(2, query.until_ns / kNsInSecond + 1);
    int code = rows.Step();
    for (; code == SQLITE_ROW; code = rows.Step()) {
      Piece piece;
      piece.hour = rows.Integer(0);
      piece.from_ns = std::max(rows.Integer(1), piece.hour * kNsInSecond);
      piece.to_ns = std::min(rows.Integer(2), (piece.hour + kHour) * kNsInSecond);
      piece.gpu = rows.Text(5);
      piece.session = {rows.Integer(3), rows.Integer(4), piece.gpu};
      piece.user = rows.Text(8);
      piece.project = rows.Text(9);
      piece.run = rows.Text(10);
      piece.amounts = {Count(&rows, 11), Count(&rows, 12), Count(&rows, 13),
                       rows.Real(14),    rows.Real(15),    rows.Real(16),
                       Count(&rows, 17), Count(&rows, 18), Count(&rows, 19)};
      const auto cut = Cut(piece, query.since_ns, query.until_ns);
      if (cut) add(*cut, static_cast<int>(rows.Integer(6)), rows.Integer(7));
    }
    return code == SQLITE_DONE ? Status() : Failed(code);
  }

  int64_t Begin() {
    int64_t begin_ns = 0;
    database_.Read("SELECT min(from_ns) FROM usage WHERE hour = (SELECT min(hour) FROM usage)",
                   &begin_ns);
    return begin_ns;
  }

 private:
  int OpenAs(const std::string& uri, int flags, int64_t* format) {
    const int code = database_.Open(uri, flags, kReadPatienceMs);
    return code == SQLITE_OK ? database_.Read("PRAGMA user_version", format) : code;
  }

  Error CannotRead(int number) const {
    const ErrorCode code = number == ENOENT || number == ENOTDIR ? ErrorCode::kNotFound
                           : number == EACCES                    ? ErrorCode::kRefused
                                                                 : ErrorCode::kFailed;
    return {code, "cannot read " + path_ + ": " + std::strerror(number)};
  }

  Error Failed(int code) const {
    const std::string message = "cannot read " + path_ + ": " + database_.Message();
    if (code != SQLITE_CORRUPT && code != SQLITE_NOTADB) return {ErrorCode::kFailed, message};
    return {ErrorCode::kInvalid,
            message + "; the next tandemd moves a damaged file away and begins a new one"};
  }

  const std::string path_;
  Database database_;
};

}  // namespace

Result<AccountsAnswer> ReadAccounts(const std::string& path, const AccountsQuery& query) {
  Reader reader(path);
  TRY(reader.Open());
  Sums sums(query);
  std::map<std::string, int> gpus;
  TRY(reader.ForEach(query, [&](const Piece& piece, int gpu_index, int64_t uid) {
    gpus[piece.gpu] = gpu_index;
    if (query.uid.has_value() && uid != *query.uid) return;
    if (!query.user.empty() && piece.user != query.user) return;
    sums.Add(piece);
  }));
  AccountsAnswer answer;
  answer.begin_ns = std::max(query.since_ns, reader.Begin());
  answer.rows = sums.Rows(gpus.size(), answer.begin_ns);
  answer.sum = sums.Sum(gpus.size(), answer.begin_ns);
  for (const auto& [uuid, index] : gpus) {
    answer.gpus.push_back(uuid);
    answer.gpu_indices.push_back(index);
  }
  return answer;
}

}  // namespace tandem::history
