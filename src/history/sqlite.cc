#include "src/history/sqlite.h"

namespace tandem::history {

Statement::Statement(sqlite3* connection, const char* sql) {
  sqlite3_stmt* statement = nullptr;
  code_ = sqlite3_prepare_v2(connection, sql, -1, &statement, nullptr);
  statement_.reset(statement);
}

void Statement::Bind(int place, const std::string& value) {
  sqlite3_bind_text(statement_.get(), place, value.data(), static_cast<int>(value.size()),
                    SQLITE_STATIC);
}

std::string Statement::Text(int column) {
  const unsigned char* const text = sqlite3_column_text(statement_.get(), column);
  if (text == nullptr) return "";
  const int size = sqlite3_column_bytes(statement_.get(), column);
  return {reinterpret_cast<const char*>(text), static_cast<size_t>(size)};
}

int Database::Open(const std::string& name, int flags, int patience_ms) {
  sqlite3* connection = nullptr;
  const int code = sqlite3_open_v2(name.c_str(), &connection, flags, nullptr);
  connection_.reset(connection);
  if (code == SQLITE_OK) sqlite3_busy_timeout(connection, patience_ms);
  return code;
}

int Database::Run(const char* sql) {
  return sqlite3_exec(connection_.get(), sql, nullptr, nullptr, nullptr);
}

int Database::Read(const std::string& sql, int64_t* value) {
  Statement statement = Prepare(sql.c_str());
  const int code = statement.Step();
  if (code == SQLITE_ROW) *value = statement.Integer(0);
  return code == SQLITE_ROW || code == SQLITE_DONE ? SQLITE_OK : code;
}

int Database::Read(const std::string& sql, std::string* value) {
  Statement statement = Prepare(sql.c_str());
  const int code = statement.Step();
  if (code == SQLITE_ROW) *value = statement.Text(0);
  return code == SQLITE_ROW || code == SQLITE_DONE ? SQLITE_OK : code;
}

}  // namespace tandem::history
