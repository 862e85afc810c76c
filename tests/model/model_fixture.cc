#include "model_fixture.h"

#include <algorithm>
#include <random>
#include <stdexcept>

#include "golden_file.h"

namespace deepinfer::test {
namespace {

template <typename T>
T Require(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(result).value();
}

void AppendRow(const PackedRows& rows, int64_t row, std::vector<uint8_t>* bytes) {
  const RowBytes sizes = PackedRowBytes(rows.format, rows.channels);
  bytes->insert(bytes->end(), rows.values(row), rows.values(row) + sizes.values);
  bytes->insert(bytes->end(), rows.scales(row), rows.scales(row) + sizes.scales);
}

}  // namespace

std::filesystem::path ModelFolder(const std::string& name) {
  const std::filesystem::path source(DEEPINFER_SOURCE_DIR);
  return name == "nano" ? source / "models" / name : source / "tests" / "data" / "models" / name;
}

std::vector<int32_t> TestTokenMap() {
  const std::filesystem::path source(DEEPINFER_SOURCE_DIR);
  return Require(GoldenFile::Open(source / "tests" / "data" / "golden" / "token_map.safetensors")).ints("token_map");
}

LoadedModel::LoadedModel(const std::filesystem::path& folder, std::unique_ptr<Ops> ops, const ModelOptions& options)
    : checkpoint_(std::make_unique<Checkpoint>(Require(Checkpoint::Open(folder)))), ops_(std::move(ops)) {
  model_ = Require(Model::Create(*checkpoint_, TestTokenMap(), *ops_, options));
}

std::unique_ptr<SequenceState> LoadedModel::NewSequence(int64_t tokens) { return Require(model_->NewSequence(tokens)); }

std::vector<std::vector<float>> LoadedModel::Feed(SequenceState& sequence, std::span<const int32_t> ids) {
  const BatchItem item{&sequence, ids, LogitsRows::kAll};
  return CopyRows(Require(model_->Forward({std::span(&item, 1)})).logits);
}

Status LoadedModel::ExtendDraft(SequenceState& sequence, ConstFloatView taps, int64_t first_position) {
  const DraftContext item{&sequence, 0, static_cast<int32_t>(taps.rows), first_position};
  return model_->ExtendDrafts(taps, {&item, 1});
}

Result<Draft> LoadedModel::DraftBlock(SequenceState& sequence, int32_t token) {
  DraftItem item{&sequence, token, {}};
  item.rule.temperature = 0;
  Result<DraftResult> result = model_->DraftBlocks({&item, 1}, config().dspark_block_size);
  if (!result.ok()) return result.status();
  Draft draft;
  draft.ids.assign(result->ids.begin(), result->ids.end());
  draft.confidence.assign(result->confidence.begin(), result->confidence.end());
  draft.logits.assign(result->logits.data, result->logits.data + result->logits.rows * result->logits.columns);
  return draft;
}

std::vector<std::vector<float>> CopyRows(ConstFloatView view) {
  std::vector<std::vector<float>> rows;
  for (int64_t row = 0; row < view.rows; ++row) rows.emplace_back(view.row(row), view.row(row) + view.columns);
  return rows;
}

std::vector<int32_t> RandomIds(int64_t count, int64_t vocabulary, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary)));
  return ids;
}

std::vector<uint8_t> StateBytes(const SequenceState& sequence) {
  const SequenceLayout& layout = sequence.layout();
  const int64_t length = sequence.length();
  std::vector<uint8_t> bytes;
  for (int64_t position = std::max<int64_t>(0, length - layout.window); position < length; ++position) {
    for (int layer = 0; layer < layout.layers; ++layer) {
      AppendRow(sequence.WindowRing(layer), position % layout.ring_slots, &bytes);
    }
  }
  for (int source = 0; source < static_cast<int>(layout.sources.size()); ++source) {
    const KvSource& kv_source = layout.sources[static_cast<size_t>(source)];
    for (int64_t row = 0; row < length / kv_source.ratio; ++row) {
      AppendRow(sequence.CompressedRows(source), row, &bytes);
      AppendRow(sequence.IndexKeys(source), row, &bytes);
    }
    // Only an open pair's first token is ever read again, unless tokens are taken back.
    if (kv_source.tail_slot >= 0 && length % 2 == 1) {
      const FloatView tail = sequence.Tail(kv_source.tail_slot);
      const auto* row = reinterpret_cast<const uint8_t*>(tail.row((length - 1) % tail.rows));
      bytes.insert(bytes.end(), row, row + tail.columns * static_cast<int64_t>(sizeof(float)));
    }
  }
  const int64_t first_draft = std::max(sequence.draft_begin(), sequence.draft_end() - layout.window);
  for (int64_t position = first_draft; position < sequence.draft_end(); ++position) {
    for (int stage = 0; stage < layout.stages; ++stage) {
      AppendRow(sequence.DraftRing(stage), position % layout.ring_slots, &bytes);
    }
  }
  return bytes;
}

}  // namespace deepinfer::test
