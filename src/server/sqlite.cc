#include "server/sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>

namespace deepinfer {

SqliteDatabase::~SqliteDatabase() { sqlite3_close(handle_); }

Status SqliteDatabase::Error(int code) const {
  const char* reason = handle_ != nullptr ? sqlite3_errmsg(handle_) : sqlite3_errstr(code);
  switch (code & 0xFF) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Status::Corruption(
          fmt::format("{}: damaged ({}); move the file away, the next start makes a new one", path_, reason));
    case SQLITE_BUSY:
      return Status::Io(fmt::format("{}: another process keeps it locked", path_));
    default:
      return Status::Io(fmt::format("{}: {}", path_, reason));
  }
}

Status SqliteDatabase::Open(const std::string& path, int busy_ms) {
  path_ = path;
  // Callers lock: SQLite need not do it again.
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int code = sqlite3_open_v2(path.c_str(), &handle_, kFlags, nullptr);
  if (code != SQLITE_OK) return Error(code);
  sqlite3_busy_timeout(handle_, busy_ms);
  return Status::Ok();
}

Status SqliteDatabase::Execute(const char* sql) {
  const int code = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? Status::Ok() : Error(code);
}

Result<int64_t> SqliteDatabase::Number(const char* sql) {
  SqliteStatement statement;
  DEEPINFER_RETURN_IF_ERROR(statement.Prepare(this, sql));
  SqliteQuery query(&statement);
  DEEPINFER_ASSIGN_OR_RETURN(const bool row, query.Step());
  if (!row) return Status::Internal(fmt::format("{}: no result of {}", path_, sql));
  return query.Integer(0);
}

SqliteStatement::~SqliteStatement() { sqlite3_finalize(handle_); }

Status SqliteStatement::Prepare(SqliteDatabase* database, const char* sql) {
  database_ = database;
  const int code = sqlite3_prepare_v3(database->handle_, sql, -1, SQLITE_PREPARE_PERSISTENT, &handle_, nullptr);
  return code == SQLITE_OK ? Status::Ok() : database->Error(code);
}

SqliteQuery::~SqliteQuery() {
  sqlite3_reset(statement_.handle_);
  sqlite3_clear_bindings(statement_.handle_);
}

SqliteQuery& SqliteQuery::Bind(int64_t value) {
  const int code = sqlite3_bind_int64(statement_.handle_, ++parameters_, value);
  if (code != SQLITE_OK) bind_error_ = code;
  return *this;
}

SqliteQuery& SqliteQuery::Bind(std::string_view text) {
  // A null pointer would bind NULL.
  const char* bytes = text.empty() ? "" : text.data();
  const int code =
      sqlite3_bind_text64(statement_.handle_, ++parameters_, bytes, text.size(), SQLITE_STATIC, SQLITE_UTF8);
  if (code != SQLITE_OK) bind_error_ = code;
  return *this;
}

Result<bool> SqliteQuery::Step() {
  if (bind_error_ != SQLITE_OK) return statement_.database_->Error(bind_error_);
  const int code = sqlite3_step(statement_.handle_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return statement_.database_->Error(code);
}

Status SqliteQuery::Run() { return Step().status(); }

int64_t SqliteQuery::Integer(int column) const { return sqlite3_column_int64(statement_.handle_, column); }

std::string SqliteQuery::Text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_.handle_, column));
  if (bytes == nullptr) return {};
  return std::string(bytes, static_cast<size_t>(sqlite3_column_bytes(statement_.handle_, column)));
}

SqliteTransaction::~SqliteTransaction() {
  // When SQLite has rolled back by itself this does nothing.
  if (open_) (void)database_->Execute("ROLLBACK");
}

Status SqliteTransaction::Begin() {
  DEEPINFER_RETURN_IF_ERROR(database_->Execute("BEGIN IMMEDIATE"));
  open_ = true;
  return Status::Ok();
}

Status SqliteTransaction::Commit() {
  DEEPINFER_RETURN_IF_ERROR(database_->Execute("COMMIT"));
  open_ = false;
  return Status::Ok();
}

}  // namespace deepinfer
