// A connection to SQLite and its statements, as owners. Calls return SQLite's result codes, which
// callers branch on.
//
// Threading: one thread.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace tandem::history {

class Statement {
 public:
  // Where the text is wrong or the database is not readable, Step() says so.
  Statement(sqlite3* connection, const char* sql);

  void Bind(int place, int64_t value) { sqlite3_bind_int64(statement_.get(), place, value); }
  void Bind(int place, double value) { sqlite3_bind_double(statement_.get(), place, value); }
  // REQUIRES: the text lives until Reset().
  void Bind(int place, const std::string& value);

  int Step() { return code_ != SQLITE_OK ? code_ : sqlite3_step(statement_.get()); }
  int Reset() { return sqlite3_reset(statement_.get()); }

  int64_t Integer(int column) { return sqlite3_column_int64(statement_.get(), column); }
  double Real(int column) { return sqlite3_column_double(statement_.get(), column); }
  std::string Text(int column);

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  int code_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

class Database {
 public:
  Database() = default;

  // `flags`: as for sqlite3_open_v2. A call that meets another's lock waits at most `patience_ms`.
  int Open(const std::string& name, int flags, int patience_ms);
  void Close() { connection_.reset(); }
  bool IsOpen() const { return connection_ != nullptr; }

  int Run(const char* sql);
  // The first value that `sql` gives.
  int Read(const std::string& sql, int64_t* value);
  int Read(const std::string& sql, std::string* value);
  Statement Prepare(const char* sql) { return {connection_.get(), sql}; }
  // Rows that the last statement changed.
  int Changes() const { return sqlite3_changes(connection_.get()); }
  // In words, of the last call.
  std::string Message() const { return sqlite3_errmsg(connection_.get()); }

 private:
  struct CloseIt {
    void operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }
  };
  std::unique_ptr<sqlite3, CloseIt> connection_;
};

}  // namespace tandem::history
