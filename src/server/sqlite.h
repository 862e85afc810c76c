// SqliteDatabase, SqliteStatement, SqliteQuery: SQLite with Status for errors and nothing to forget.
//
// Thread-safety: one thread at a time. Ownership: a statement borrows its database, a query its statement. Errors: kIo;
// kCorruption when the file is damaged or no database at all, with the remedy. All begin with the file's name.
#ifndef DEEPINFER_SERVER_SQLITE_H_
#define DEEPINFER_SERVER_SQLITE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "deepinfer/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace deepinfer {

class SqliteDatabase {
 public:
  SqliteDatabase() = default;
  ~SqliteDatabase();
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  /// Opens a file that exists, or ":memory:"; once. What another process has locked is waited for `busy_ms`.
  Status Open(const std::string& path, int busy_ms);

  /// Runs statements that have no result.
  Status Execute(const char* sql);
  /// The one number that a statement yields.
  Result<int64_t> Number(const char* sql);

  /// What the last call's result code means.
  Status Error(int code) const;

 private:
  friend class SqliteStatement;
  std::string path_;
  sqlite3* handle_ = nullptr;
};

/// Prepared once, run often.
class SqliteStatement {
 public:
  SqliteStatement() = default;
  ~SqliteStatement();
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;

  Status Prepare(SqliteDatabase* database, const char* sql);

 private:
  friend class SqliteQuery;
  SqliteDatabase* database_ = nullptr;
  sqlite3_stmt* handle_ = nullptr;
};

/// One run of a statement; gives up its locks at the end of the scope.
class SqliteQuery {
 public:
  explicit SqliteQuery(SqliteStatement* statement) : statement_(*statement) {}
  ~SqliteQuery();
  SqliteQuery(const SqliteQuery&) = delete;
  SqliteQuery& operator=(const SqliteQuery&) = delete;

  /// The next parameter. Texts outlive the query.
  SqliteQuery& Bind(int64_t value);
  SqliteQuery& Bind(std::string_view text);

  /// Whether there is a row (more).
  Result<bool> Step();
  /// For statements without rows.
  Status Run();

  int64_t Integer(int column) const;
  std::string Text(int column) const;

 private:
  SqliteStatement& statement_;
  int parameters_ = 0;
  int bind_error_ = 0;
};

/// BEGIN IMMEDIATE ... COMMIT; rolled back when Commit was not reached or failed.
class SqliteTransaction {
 public:
  explicit SqliteTransaction(SqliteDatabase* database) : database_(database) {}
  ~SqliteTransaction();
  SqliteTransaction(const SqliteTransaction&) = delete;
  SqliteTransaction& operator=(const SqliteTransaction&) = delete;

  Status Begin();
  Status Commit();

 private:
  SqliteDatabase* database_;
  bool open_ = false;
};

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_SQLITE_H_
