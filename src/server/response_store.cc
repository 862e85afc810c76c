#include "server/response_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <limits>
#include <mutex>
#include <system_error>

#include "server/sqlite.h"

namespace deepinfer {
namespace {

constexpr int kBusyMilliseconds = 5000;
constexpr int64_t kSecondsPerDay = 86400;

// docs/response-store.md describes them; a change of the schema needs a new version there and here.
constexpr int64_t kSchemaVersion = 1;
constexpr int64_t kApplicationId = 0x44495253;  // "DIRS"
constexpr char kSchema[] = R"(
CREATE TABLE responses (
  seq INTEGER PRIMARY KEY,
  owner TEXT NOT NULL,
  id TEXT NOT NULL,
  created INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  previous_id TEXT NOT NULL,
  model TEXT NOT NULL,
  items TEXT NOT NULL,
  response TEXT NOT NULL,
  UNIQUE (owner, id)
);
CREATE INDEX responses_by_age ON responses (created, seq);
CREATE TABLE totals (responses INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO totals VALUES (0, 0);
CREATE TRIGGER response_added AFTER INSERT ON responses BEGIN
  UPDATE totals SET responses = responses + 1, bytes = bytes + new.bytes;
END;
CREATE TRIGGER response_removed AFTER DELETE ON responses BEGIN
  UPDATE totals SET responses = responses - 1, bytes = bytes - old.bytes;
END;
PRAGMA application_id = 0x44495253;
PRAGMA user_version = 1;
)";

Status SystemError(const std::string& path, int error) {
  return Status::Io(fmt::format("{}: {}", path, std::generic_category().message(error)));
}

/// Makes the folder and an empty file, for the owner's eyes only. SQLite gives its side files the file's mode.
Status MakeFile(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.parent_path();
  if (!folder.empty()) {
    std::error_code error;
    if (folder.has_parent_path()) std::filesystem::create_directories(folder.parent_path(), error);
    if (error) return SystemError(folder.string(), error.value());
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return SystemError(folder.string(), errno);
  }
  // An existing file is not even opened: closing it would drop the locks that another store of this process has on it.
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor >= 0) close(descriptor);
  return descriptor >= 0 || errno == EEXIST ? Status::Ok() : SystemError(path.string(), errno);
}

int64_t BytesOf(const StoredResponseRow& row) {
  size_t bytes = 0;
  for (const std::string* text :
       {&row.owner, &row.id, &row.previous_id, &row.model, &row.items_json, &row.response_json}) {
    bytes += text->size();
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace

int64_t UnixSeconds() { return static_cast<int64_t>(std::time(nullptr)); }

class ResponseStore::Database {
 public:
  explicit Database(const ResponseStoreOptions& options) : options_(options) {}

  Status Open() {
    const std::string& path = options_.path;
    if (path != ":memory:") DEEPINFER_RETURN_IF_ERROR(MakeFile(path));
    DEEPINFER_RETURN_IF_ERROR(sqlite_.Open(path, kBusyMilliseconds));
    DEEPINFER_RETURN_IF_ERROR(CheckVersion());
    // In WAL mode NORMAL survives a crash of the process; a power cut may cost the last responses, never the file.
    // What is deleted is overwritten.
    DEEPINFER_RETURN_IF_ERROR(
        sqlite_.Execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON"));
    DEEPINFER_RETURN_IF_ERROR(MakeSchema());
    const std::pair<SqliteStatement*, const char*> statements[] = {
        {&insert_,
         "INSERT INTO responses (owner, id, created, bytes, previous_id, model, items, response) "
         "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"},
        {&get_,
         "SELECT created, previous_id, model, items, response FROM responses "
         "WHERE owner = ? AND id = ? AND created >= ?"},
        {&items_, "SELECT items FROM responses WHERE owner = ? AND id = ? AND created >= ?"},
        {&remove_, "DELETE FROM responses WHERE owner = ? AND id = ? RETURNING created"},
        {&expire_, "DELETE FROM responses WHERE created < ?"},
        // The one just added is not the last to come, but it is the last to go.
        {&evict_,
         "DELETE FROM responses WHERE seq = "
         "(SELECT seq FROM responses WHERE seq <> last_insert_rowid() ORDER BY created, seq LIMIT 1)"},
        {&totals_, "SELECT responses, bytes FROM totals"},
    };
    for (const auto& [statement, sql] : statements) DEEPINFER_RETURN_IF_ERROR(statement->Prepare(&sqlite_, sql));
    SqliteTransaction transaction(&sqlite_);
    DEEPINFER_RETURN_IF_ERROR(transaction.Begin());
    DEEPINFER_RETURN_IF_ERROR(Expire());
    DEEPINFER_RETURN_IF_ERROR(Evict());
    return transaction.Commit();
  }

  Status Put(const StoredResponseRow& row) {
    const int64_t bytes = BytesOf(row);
    if (options_.max_bytes > 0 && bytes > options_.max_bytes) {
      return Status::ResourceExhausted(
          fmt::format("{}: a response of {} bytes is larger than the whole store, {} bytes", options_.path, bytes,
                      options_.max_bytes));
    }
    SqliteTransaction transaction(&sqlite_);
    DEEPINFER_RETURN_IF_ERROR(transaction.Begin());
    DEEPINFER_RETURN_IF_ERROR(Remove(row.id, row.owner).status());
    SqliteQuery insert(&insert_);
    insert.Bind(row.owner).Bind(row.id).Bind(row.created).Bind(bytes).Bind(row.previous_id);
    insert.Bind(row.model).Bind(row.items_json).Bind(row.response_json);
    DEEPINFER_RETURN_IF_ERROR(insert.Run());
    DEEPINFER_RETURN_IF_ERROR(Expire());
    DEEPINFER_RETURN_IF_ERROR(Evict());
    return transaction.Commit();
  }

  Result<std::optional<StoredResponseRow>> Get(const std::string& id, const std::string& owner) {
    SqliteQuery query(&get_);
    query.Bind(owner).Bind(id).Bind(Oldest());
    DEEPINFER_ASSIGN_OR_RETURN(const bool found, query.Step());
    if (!found) return std::optional<StoredResponseRow>();
    return std::optional(StoredResponseRow{.id = id,
                                           .owner = owner,
                                           .created = query.Integer(0),
                                           .previous_id = query.Text(1),
                                           .model = query.Text(2),
                                           .items_json = query.Text(3),
                                           .response_json = query.Text(4)});
  }

  Result<std::optional<std::string>> Items(const std::string& id, const std::string& owner) {
    SqliteQuery query(&items_);
    query.Bind(owner).Bind(id).Bind(Oldest());
    DEEPINFER_ASSIGN_OR_RETURN(const bool found, query.Step());
    if (!found) return std::optional<std::string>();
    return std::optional(query.Text(0));
  }

  /// Whether there was one that had not expired.
  Result<bool> Remove(const std::string& id, const std::string& owner) {
    SqliteQuery query(&remove_);
    query.Bind(owner).Bind(id);
    DEEPINFER_ASSIGN_OR_RETURN(const bool found, query.Step());
    const bool alive = found && query.Integer(0) >= Oldest();
    if (found) DEEPINFER_RETURN_IF_ERROR(query.Run());  // to its end: there the change is committed
    return alive;
  }

  struct Totals {
    int64_t responses = 0;
    int64_t bytes = 0;
  };
  Result<Totals> ReadTotals() {
    SqliteQuery query(&totals_);
    DEEPINFER_ASSIGN_OR_RETURN(const bool found, query.Step());
    if (!found) return Status::Corruption(fmt::format("{}: has lost its totals; move the file away", options_.path));
    return Totals{query.Integer(0), query.Integer(1)};
  }

  std::mutex mutex;  // guards all

 private:
  Status CheckVersion() {
    DEEPINFER_ASSIGN_OR_RETURN(const int64_t version, sqlite_.Number("PRAGMA user_version"));
    DEEPINFER_ASSIGN_OR_RETURN(const int64_t application, sqlite_.Number("PRAGMA application_id"));
    DEEPINFER_ASSIGN_OR_RETURN(const int64_t objects, sqlite_.Number("SELECT count(*) FROM sqlite_schema"));
    if (application != kApplicationId && (application != 0 || version != 0 || objects != 0)) {
      return Status::InvalidArgument(
          fmt::format("{}: a database of another program; give another file", options_.path));
    }
    if (version > kSchemaVersion) {
      return Status::Unsupported(fmt::format(
          "{}: written by a newer version of DeepInfer (schema {}, this one knows {}); update, or give another file",
          options_.path, version, kSchemaVersion));
    }
    return Status::Ok();
  }

  Status MakeSchema() {
    SqliteTransaction transaction(&sqlite_);
    DEEPINFER_RETURN_IF_ERROR(transaction.Begin());
    // Asked again under the lock: another process may have made it.
    DEEPINFER_ASSIGN_OR_RETURN(const int64_t version, sqlite_.Number("PRAGMA user_version"));
    if (version == 0) DEEPINFER_RETURN_IF_ERROR(sqlite_.Execute(kSchema));
    return transaction.Commit();
  }

  /// Responses made before are gone.
  int64_t Oldest() const {
    if (options_.max_age_days == 0) return std::numeric_limits<int64_t>::min();
    return options_.clock() - options_.max_age_days * kSecondsPerDay;
  }

  Status Expire() {
    SqliteQuery query(&expire_);
    return query.Bind(Oldest()).Run();
  }

  Status Evict() {
    while (options_.max_bytes > 0) {
      DEEPINFER_ASSIGN_OR_RETURN(const Totals totals, ReadTotals());
      if (totals.bytes <= options_.max_bytes || totals.responses <= 1) break;
      DEEPINFER_RETURN_IF_ERROR(SqliteQuery(&evict_).Run());
    }
    return Status::Ok();
  }

  const ResponseStoreOptions options_;
  SqliteDatabase sqlite_;
  SqliteStatement insert_;
  SqliteStatement get_;
  SqliteStatement items_;
  SqliteStatement remove_;
  SqliteStatement expire_;
  SqliteStatement evict_;
  SqliteStatement totals_;
};

ResponseStore::ResponseStore(std::unique_ptr<Database> database) : database_(std::move(database)) {}
ResponseStore::~ResponseStore() = default;

Result<std::unique_ptr<ResponseStore>> ResponseStore::Open(const ResponseStoreOptions& options) {
  auto database = std::make_unique<Database>(options);
  DEEPINFER_RETURN_IF_ERROR(database->Open());
  return std::unique_ptr<ResponseStore>(new ResponseStore(std::move(database)));
}

Status ResponseStore::Put(const StoredResponseRow& response) {
  const std::lock_guard lock(database_->mutex);
  return database_->Put(response);
}

Result<std::optional<StoredResponseRow>> ResponseStore::Get(const std::string& id, const std::string& owner) {
  const std::lock_guard lock(database_->mutex);
  return database_->Get(id, owner);
}

Result<std::optional<std::string>> ResponseStore::Items(const std::string& id, const std::string& owner) {
  const std::lock_guard lock(database_->mutex);
  return database_->Items(id, owner);
}

Result<bool> ResponseStore::Delete(const std::string& id, const std::string& owner) {
  const std::lock_guard lock(database_->mutex);
  return database_->Remove(id, owner);
}

Result<int64_t> ResponseStore::count() {
  const std::lock_guard lock(database_->mutex);
  DEEPINFER_ASSIGN_OR_RETURN(const Database::Totals totals, database_->ReadTotals());
  return totals.responses;
}

Result<int64_t> ResponseStore::bytes() {
  const std::lock_guard lock(database_->mutex);
  DEEPINFER_ASSIGN_OR_RETURN(const Database::Totals totals, database_->ReadTotals());
  return totals.bytes;
}

}  // namespace deepinfer
