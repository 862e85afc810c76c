#include "cache/redis_tier.h"

#include <fmt/format.h>
#include <hiredis/hiredis.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <utility>

namespace deepinfer {
namespace {

constexpr size_t kNamesPerBatch = 256;
constexpr std::string_view kNamesPerScan = "1000";
/// More than a record, for replies that are lists of names.
constexpr int64_t kOtherReplyBytes = int64_t{1} << 20;
/// A server whose scan does not end by then is broken.
constexpr int64_t kMostScans = int64_t{1} << 24;

std::string_view TextOf(const redisReply& reply) {
  const bool is_text =
      reply.type == REDIS_REPLY_STRING || reply.type == REDIS_REPLY_STATUS || reply.type == REDIS_REPLY_ERROR;
  return is_text ? std::string_view(reply.str, reply.len) : std::string_view();
}
bool IsError(const redisReply& reply) { return reply.type == REDIS_REPLY_ERROR; }
bool IsWrongType(const redisReply& reply) { return IsError(reply) && TextOf(reply).starts_with("WRONGTYPE"); }

std::span<const uint8_t> BytesOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string_view ScopeOf(const KvScope& scope) {
  return {reinterpret_cast<const char*>(scope.root.bytes.data()), RedisTier::kScopeBytes};
}

/// The value of a line `name:value` of INFO.
std::string_view InfoField(std::string_view info, std::string_view name) {
  for (size_t at = 0; at < info.size();) {
    const size_t end = std::min(info.find("\r\n", at), info.size());
    std::string_view line = info.substr(at, end - at);
    if (line.starts_with(name) && line.substr(name.size()).starts_with(':')) return line.substr(name.size() + 1);
    at = end + 2;
  }
  return {};
}
int64_t ToNumber(std::string_view text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

class RedisTier::Lease {
 public:
  Lease(RedisTier* tier, std::unique_ptr<RedisConnection> connection)
      : tier_(tier), connection_(std::move(connection)) {}
  Lease(Lease&&) noexcept = default;
  Lease& operator=(Lease&&) = delete;
  ~Lease() {
    if (connection_ == nullptr) return;
    {
      const std::lock_guard lock(tier_->pool_mutex_);
      tier_->pool_.push_back(std::move(connection_));
    }
    tier_->pool_changed_.notify_one();
  }
  RedisConnection& operator*() const { return *connection_; }
  RedisConnection* operator->() const { return connection_.get(); }

 private:
  RedisTier* tier_;
  std::unique_ptr<RedisConnection> connection_;
};

Result<std::unique_ptr<RedisTier>> RedisTier::Create(const KvRecordCodec& codec, RedisTierOptions options) {
  DEEPINFER_ASSIGN_OR_RETURN(const RedisUrl url, RedisUrl::Parse(options.url));
  options.url.clear();
  options.connections = std::max(options.connections, 1);
  return std::unique_ptr<RedisTier>(new RedisTier(codec, std::move(options), url));
}

RedisTier::RedisTier(const KvRecordCodec& codec, RedisTierOptions options, const RedisUrl& url)
    : codec_(codec),
      options_(std::move(options)),
      prefix_(fmt::format("deepinfer:kv:{}:{}:", kKvFormatVersion, ToHex(codec.name_space().fingerprint, 8))) {
  constexpr size_t kMostIds = 65535;
  const int64_t largest =
      std::max(ValueBytes(KvRecordKind::kBlock, kMostIds), ValueBytes(KvRecordKind::kRings, kMostIds));
  const RedisLimits limits = {options_.connect_seconds, options_.command_seconds, largest + kOtherReplyBytes};
  for (int i = 0; i < options_.connections; ++i) pool_.push_back(std::make_unique<RedisConnection>(url, limits));
}

Result<RedisTier::Lease> RedisTier::Borrow() {
  std::unique_ptr<RedisConnection> connection;
  {
    std::unique_lock lock(pool_mutex_);
    const auto limit = std::chrono::duration<double>(options_.connect_seconds + options_.command_seconds);
    if (!pool_changed_.wait_for(lock, limit, [this] { return !pool_.empty(); })) {
      return Status::Io(fmt::format("all {} connections to Redis are in use", options_.connections));
    }
    // The one that was used last is the likeliest to be open.
    connection = std::move(pool_.back());
    pool_.pop_back();
  }
  Lease lease(this, std::move(connection));
  DEEPINFER_RETURN_IF_ERROR(lease->Open());
  return lease;
}

std::string RedisTier::NameOf(KvRecordKind kind, const KvKey& key) const {
  const std::string_view letters = codec_.encrypts() ? "BR" : "br";
  return fmt::format("{}{}:{}", prefix_, letters[static_cast<size_t>(kind)], ToHex(key));
}

int64_t RedisTier::ValueBytes(KvRecordKind kind, size_t ids) const {
  return KvRecordCodec::RecordBytes(static_cast<int64_t>(ids), codec_.payload_bytes(kind)) + kScopeBytes;
}

KvRecordState RedisTier::Decode(const KvRecordCodec& codec, std::span<const uint8_t> value, KvRead* read) {
  const int64_t record_bytes = KvRecordCodec::RecordBytes(std::ssize(read->ids), std::ssize(read->payload));
  if (std::ssize(value) != record_bytes + kScopeBytes) return KvRecordState::kCorrupt;
  return codec.Decode(value.first(static_cast<size_t>(record_bytes)), read);
}

Result<int64_t> RedisTier::Find(std::span<const KvKey> keys) {
  DEEPINFER_ASSIGN_OR_RETURN(const Lease connection, Borrow());
  for (size_t begin = 0; begin < keys.size(); begin += kNamesPerBatch) {
    const auto batch = keys.subspan(begin, std::min(kNamesPerBatch, keys.size() - begin));
    for (const KvKey& key : batch) {
      const std::string name = NameOf(KvRecordKind::kBlock, key);
      connection->Add(std::array<std::string_view, 2>{"EXISTS", name});
    }
    DEEPINFER_ASSIGN_OR_RETURN(const std::vector<RedisReply> replies, connection->Exchange());
    for (size_t i = 0; i < batch.size(); ++i) {
      if (IsError(*replies[i])) return RedisError(connection->address(), TextOf(*replies[i]), false);
      if (replies[i]->integer != 1) return static_cast<int64_t>(begin + i);
    }
  }
  return std::ssize(keys);
}

Result<bool> RedisTier::Has(KvRecordKind kind, const KvKey& key) {
  DEEPINFER_ASSIGN_OR_RETURN(const Lease connection, Borrow());
  DEEPINFER_ASSIGN_OR_RETURN(const RedisReply reply, connection->Call({"EXISTS", NameOf(kind, key)}));
  return reply->integer == 1;
}

Status RedisTier::Read(std::span<KvRead> reads) {
  KvTierCounts counts;
  std::vector<KvRead*> wanted;
  for (KvRead& read : reads) {
    read.found = false;
    // Of another namespace: what is under this name would be right, and look wrong.
    if (std::ssize(read.payload) == codec_.payload_bytes(read.kind)) wanted.push_back(&read);
  }
  Status status;
  if (!wanted.empty()) {
    Result<Lease> connection = Borrow();
    status = connection.status();
    const std::span<KvRead*> all = wanted;
    for (size_t begin = 0, end = 0; begin < all.size() && status.ok(); begin = end) {
      int64_t bytes = 0;
      for (; end < all.size(); ++end) {
        bytes += ValueBytes(all[end]->kind, all[end]->ids.size());
        if (end > begin && bytes > options_.batch_bytes) break;
      }
      status = ReadBatch(**connection, all.subspan(begin, end - begin), &counts);
    }
  }
  if (status.ok()) counts.misses = std::ssize(reads) - counts.hits;
  Count(counts);
  return status;
}

Status RedisTier::ReadBatch(RedisConnection& connection, std::span<KvRead*> reads, KvTierCounts* counts) {
  for (const KvRead* read : reads) {
    // One byte more than the value has tells a longer one.
    const std::string last = std::to_string(ValueBytes(read->kind, read->ids.size()));
    const std::string name = NameOf(read->kind, read->key);
    connection.Add(std::array<std::string_view, 4>{"GETRANGE", name, "0", last});
  }
  DEEPINFER_ASSIGN_OR_RETURN(const std::vector<RedisReply> replies, connection.Exchange());
  std::vector<std::string> bad;
  for (size_t i = 0; i < reads.size(); ++i) {
    const std::string_view value = TextOf(*replies[i]);
    if (IsError(*replies[i]) && !IsWrongType(*replies[i])) return RedisError(connection.address(), value, false);
    if (replies[i]->type == REDIS_REPLY_STRING && value.empty()) continue;  // not there
    KvRecordState state = KvRecordState::kCorrupt;
    if (replies[i]->type == REDIS_REPLY_STRING) state = Decode(codec_, BytesOf(value), reads[i]);
    if (state == KvRecordState::kGood) {
      ++counts->hits;
      counts->read_bytes += std::ssize(reads[i]->payload);
    } else {
      ++counts->corrupt;
      bad.push_back(NameOf(reads[i]->kind, reads[i]->key));
    }
  }
  return Unlink(connection, bad);
}

Status RedisTier::Unlink(RedisConnection& connection, const std::vector<std::string>& names) {
  if (names.empty()) return Status::Ok();
  std::vector<std::string_view> words = {"UNLINK"};
  words.insert(words.end(), names.begin(), names.end());
  connection.Add(words);
  DEEPINFER_ASSIGN_OR_RETURN(const std::vector<RedisReply> replies, connection.Exchange());
  return IsError(*replies[0]) ? RedisError(connection.address(), TextOf(*replies[0]), false) : Status::Ok();
}

Status RedisTier::Write(std::span<const KvWrite> writes) {
  const int64_t now = options_.clock();
  DEEPINFER_ASSIGN_OR_RETURN(const Lease connection, Borrow());
  KvTierCounts counts;
  Status status;
  for (size_t begin = 0; begin < writes.size() && status.ok(); begin += kNamesPerBatch) {
    const auto batch = writes.subspan(begin, std::min(kNamesPerBatch, writes.size() - begin));
    std::vector<const KvWrite*> asked;
    for (const KvWrite& write : batch) {
      if (write.expires_at <= now) continue;
      const std::string name = NameOf(write.kind, write.key);
      const std::string expires_at = std::to_string(write.expires_at);
      connection->Add(std::array<std::string_view, 2>{"EXISTS", name});
      connection->Add(std::array<std::string_view, 4>{"EXPIREAT", name, expires_at, "GT"});
      asked.push_back(&write);
    }
    Result<std::vector<RedisReply>> replies = connection->Exchange();
    status = replies.status();
    std::vector<const KvWrite*> missing;
    for (size_t i = 0; i < asked.size() && status.ok(); ++i) {
      for (const size_t reply : {2 * i, 2 * i + 1}) {
        if (IsError(*(*replies)[reply])) status = RedisError(connection->address(), TextOf(*(*replies)[reply]), false);
      }
      if ((*replies)[2 * i]->integer == 0) missing.push_back(asked[i]);
    }
    if (status.ok()) status = WriteMissing(*connection, missing, &counts);
  }
  Count(counts);
  return status;
}

Status RedisTier::WriteMissing(RedisConnection& connection, std::span<const KvWrite* const> writes,
                               KvTierCounts* counts) {
  std::vector<char> value;
  std::vector<int64_t> waiting;  // payload bytes
  const auto flush = [&]() -> Status {
    DEEPINFER_ASSIGN_OR_RETURN(const std::vector<RedisReply> replies, connection.Exchange());
    Status status;
    for (size_t i = 0; i < replies.size(); ++i) {
      if (IsError(*replies[i])) {
        status = RedisError(connection.address(), TextOf(*replies[i]), false);
        continue;
      }
      ++counts->written;
      counts->written_bytes += waiting[i];
    }
    waiting.clear();
    return status;
  };
  for (const KvWrite* write : writes) {
    const int64_t bytes = ValueBytes(write->kind, write->ids.size());
    if (!waiting.empty() && connection.waiting_bytes() + bytes > options_.batch_bytes) {
      DEEPINFER_RETURN_IF_ERROR(flush());
    }
    value.resize(static_cast<size_t>(bytes));
    const std::span<uint8_t> record(reinterpret_cast<uint8_t*>(value.data()), value.size() - kScopeBytes);
    if (Status encoded = codec_.Encode(*write, record); !encoded.ok()) {
      connection.Close();  // with what waits there
      return encoded;
    }
    std::ranges::copy(ScopeOf(write->scope), value.end() - kScopeBytes);
    const std::string name = NameOf(write->kind, write->key);
    const std::string expires_at = std::to_string(write->expires_at);
    connection.Add(
        std::array<std::string_view, 5>{"SET", name, std::string_view(value.data(), value.size()), "EXAT", expires_at});
    waiting.push_back(std::ssize(write->payload));
  }
  return waiting.empty() ? Status::Ok() : flush();
}

Status RedisTier::Maintain() {
  DEEPINFER_ASSIGN_OR_RETURN(const Lease connection, Borrow());
  connection->Add(std::array<std::string_view, 2>{"INFO", "memory"});
  DEEPINFER_ASSIGN_OR_RETURN(const std::vector<RedisReply> replies, connection->Exchange());
  const std::string_view info = TextOf(*replies[0]);
  if (IsError(*replies[0])) {
    // A user without the right to ask is no reason to do without the tier.
    return info.starts_with("NOPERM") ? Status::Ok() : RedisError(connection->address(), info, false);
  }
  const int64_t limit = ToNumber(InfoField(info, "maxmemory"));
  const std::string_view policy = InfoField(info, "maxmemory_policy");
  std::string warning;
  if (limit == 0) {
    warning = fmt::format(
        "{}: Redis has no maxmemory and will grow until records expire: set maxmemory and "
        "maxmemory-policy allkeys-lru",
        connection->address());
  } else if (policy == "noeviction") {
    warning =
        fmt::format("{}: Redis will refuse records when its maxmemory is reached: set maxmemory-policy allkeys-lru",
                    connection->address());
  }
  const std::lock_guard lock(counts_mutex_);
  counts_.bytes = ToNumber(InfoField(info, "used_memory"));
  counts_.budget_bytes = limit;
  warning_ = std::move(warning);
  return Status::Ok();
}

Status RedisTier::Probe() {
  DEEPINFER_ASSIGN_OR_RETURN(const Lease connection, Borrow());
  DEEPINFER_RETURN_IF_ERROR(connection->Call({"PING"}).status());
  // A replica, a full server and one that cannot save its snapshot answer a PING.
  return connection->Call({"SET", prefix_ + "probe", "1", "EX", "60"}).status();
}

Status RedisTier::Drop(const KvScope& scope) {
  DEEPINFER_ASSIGN_OR_RETURN(const Lease connection, Borrow());
  const std::string pattern = prefix_ + "*";
  const std::string begin = std::to_string(-kScopeBytes);
  std::string cursor = "0";
  for (int64_t scans = 0; scans < kMostScans; ++scans) {
    DEEPINFER_ASSIGN_OR_RETURN(const RedisReply found,
                               connection->Call({"SCAN", cursor, "MATCH", pattern, "COUNT", kNamesPerScan}));
    if (found->type != REDIS_REPLY_ARRAY || found->elements != 2 || found->element[1]->type != REDIS_REPLY_ARRAY) {
      return Status::Io(fmt::format("{}: SCAN has an answer that is none", connection->address()));
    }
    cursor = TextOf(*found->element[0]);
    std::vector<std::string> names;
    for (size_t i = 0; i < found->element[1]->elements; ++i) names.emplace_back(TextOf(*found->element[1]->element[i]));
    for (const std::string& name : names) {
      connection->Add(std::array<std::string_view, 4>{"GETRANGE", name, begin, "-1"});
    }
    DEEPINFER_ASSIGN_OR_RETURN(const std::vector<RedisReply> ends, connection->Exchange());
    std::vector<std::string> dropped;
    for (size_t i = 0; i < names.size(); ++i) {
      if (IsError(*ends[i]) && !IsWrongType(*ends[i])) {
        return RedisError(connection->address(), TextOf(*ends[i]), false);
      }
      if (TextOf(*ends[i]) == ScopeOf(scope)) dropped.push_back(names[i]);
    }
    DEEPINFER_RETURN_IF_ERROR(Unlink(*connection, dropped));
    if (cursor == "0") return Status::Ok();
  }
  return Status::Io(fmt::format("{}: SCAN does not end", connection->address()));
}

int64_t RedisTier::memory_bytes() const {
  // Of each connection: commands that wait, which grow by doubling, and their replies; the reply that is being
  // received, likewise; a record before it is sent, or while it is decrypted.
  constexpr size_t kIds = 256;
  const int64_t largest = std::max(ValueBytes(KvRecordKind::kBlock, kIds), ValueBytes(KvRecordKind::kRings, kIds));
  const int64_t batch = std::max(options_.batch_bytes, largest);
  return options_.connections * (3 * batch + 2 * (largest + kOtherReplyBytes) + 2 * largest);
}

KvTierCounts RedisTier::counts() const {
  const std::lock_guard lock(counts_mutex_);
  return counts_;
}

std::string RedisTier::warning() const {
  const std::lock_guard lock(counts_mutex_);
  return warning_;
}

void RedisTier::Count(const KvTierCounts& more) {
  const std::lock_guard lock(counts_mutex_);
  counts_.Add(more);
}

}  // namespace deepinfer
