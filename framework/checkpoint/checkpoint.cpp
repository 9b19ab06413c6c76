#include "framework/checkpoint/checkpoint.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <exception>
#include <set>
#include <thread>
#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <nlohmann/json.hpp>

#include "framework/axes/environment.h"
#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/message.h"
#include "framework/storage/checkpoint_folder.h"
#include "framework/storage/checkpoint_reader.h"
#include "framework/storage/staged_shard.h"
#include "framework/training/agreement.h"

namespace fs = std::filesystem;

namespace lockstep {
namespace {

using Json = nlohmann::json;

std::string dtype_of(const StatePiece& piece) {
  constexpr std::array<std::pair<at::ScalarType, const char*>, 10> kTypes{{{at::kFloat, "F32"},
                                                                           {at::kDouble, "F64"},
                                                                           {at::kHalf, "F16"},
                                                                           {at::kBFloat16, "BF16"},
                                                                           {at::kLong, "I64"},
                                                                           {at::kInt, "I32"},
                                                                           {at::kShort, "I16"},
                                                                           {at::kChar, "I8"},
                                                                           {at::kByte, "U8"},
                                                                           {at::kBool, "BOOL"}}};
  for (const auto& [type, name] : kTypes) {
    if (piece.values.scalar_type() == type) return name;
  }
  throw ValueError(lockstep::str("a checkpoint can't hold '", piece.name, "', which is of dtype ",
                                 piece.values.scalar_type()));
}

std::vector<std::uint64_t> shape_of(const StatePiece& piece) {
  return {piece.shape.begin(), piece.shape.end()};
}

// What `work` throws, as text; "" if it does not.
std::string failure_of(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

// The first replica's failure; "" if none has failed. All replicas together.
std::string first_failure(const std::string& own, const AxisNames& axis_name) {
  const std::vector<std::string> all = training::texts_of_all(own, axis_name);
  const auto first = std::ranges::find_if(all, [](const auto& text) { return !text.empty(); });
  return first == all.end() ? "" : *first;
}

// What a replica has written, as a text for the others.
std::string written_text(const storage::ManifestFile& file, const storage::StagedShard& shard) {
  Json pieces = Json::array();
  for (const storage::StagedPiece& piece : shard.pieces()) {
    pieces.push_back({piece.name, piece.dtype, piece.shape, piece.offset, piece.size});
  }
  return Json{{"file", {file.name, file.bytes, file.checksum}}, {"pieces", pieces}}.dump();
}

storage::Manifest manifest_of(const CheckpointInfo& info, const std::vector<std::string>& written) {
  storage::Manifest manifest{.step = info.step,
                             .replicas = static_cast<std::int64_t>(written.size()),
                             .counts = info.counts,
                             .figures = {},
                             .texts = info.texts,
                             .files = {},
                             .tensors = {}};
  for (const auto& [name, value] : info.figures) {
    if (std::isfinite(value)) manifest.figures.emplace(name, value);
  }
  std::map<std::string, storage::ManifestTensor> tensors;
  for (const std::string& text : written) {
    const Json json = Json::parse(text);
    const std::size_t file = manifest.files.size();
    manifest.files.push_back({.name = json["file"][0].get<std::string>(),
                              .bytes = json["file"][1].get<std::uint64_t>(),
                              .checksum = json["file"][2].get<std::string>()});
    for (const Json& piece : json["pieces"]) {
      const auto name = piece[0].get<std::string>();
      storage::ManifestTensor& tensor = tensors[name];
      tensor.name = name;
      tensor.dtype = piece[1].get<std::string>();
      tensor.shape = piece[2].get<std::vector<std::uint64_t>>();
      const storage::ManifestPiece made{.file = file,
                                        .offset = piece[3].get<std::uint64_t>(),
                                        .size = piece[4].get<std::uint64_t>()};
      if (made.size > 0) tensor.pieces.push_back(made);
    }
  }
  for (auto& [name, tensor] : tensors) {
    std::ranges::sort(tensor.pieces, {}, &storage::ManifestPiece::offset);
    manifest.tensors.push_back(std::move(tensor));
  }
  return manifest;
}

CheckpointInfo info_of(const storage::Manifest& manifest) {
  return {.step = manifest.step,
          .counts = manifest.counts,
          .figures = manifest.figures,
          .texts = manifest.texts,
          .replicas = manifest.replicas};
}

// A checkpoint as a training's StateSource. It notes what does not fit; the values then stay.
class ReaderSource final : public StateSource {
 public:
  explicit ReaderSource(const storage::CheckpointReader& reader)
      : reader_(reader), asked_(reader.manifest().tensors.size(), false) {}

  [[nodiscard]] bool has(const std::string& name) const override {
    const storage::ManifestTensor* const tensor = reader_.find(name);
    if (tensor != nullptr) note_asked(*tensor);
    return tensor != nullptr;
  }

  bool read(const StatePiece& piece) const override {
    const storage::ManifestTensor* const tensor = reader_.find(piece.name);
    if (tensor == nullptr) {
      differences_.insert(lockstep::str("'", piece.name, "' is missing"));
      return false;
    }
    note_asked(*tensor);
    if (tensor->dtype != dtype_of(piece) || tensor->shape != shape_of(piece)) {
      differences_.insert(lockstep::str("'", piece.name, "' is ", tensor->dtype, " (",
                                        join(tensor->shape), "), not ", dtype_of(piece), " (",
                                        join(piece.shape), ")"));
      return false;
    }
    reader_.read(*tensor, static_cast<std::uint64_t>(piece.offset),
                 collectives::bytes_of(piece.values));
    return true;
  }

  // What did not fit on any replica. All replicas together.
  [[nodiscard]] std::vector<std::string> differences(const AxisNames& axis_name) const {
    const auto& tensors = reader_.manifest().tensors;
    const at::Tensor asked = at::zeros({static_cast<std::int64_t>(tensors.size())}, at::kInt);
    for (std::size_t i = 0; i < asked_.size(); ++i) {
      asked.data_ptr<std::int32_t>()[i] = asked_[i] ? 1 : 0;
    }
    psum_(asked, axis_name);
    std::set<std::string> of_any;
    for (const std::string& text : training::texts_of_all(Json(differences_).dump(), axis_name)) {
      of_any.merge(Json::parse(text).get<std::set<std::string>>());
    }
    std::vector<std::string> all(of_any.begin(), of_any.end());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (asked.data_ptr<std::int32_t>()[i] != 0) continue;
      all.push_back(lockstep::str("'", tensors[i].name, "' is unexpected"));
    }
    return all;
  }

 private:
  void note_asked(const storage::ManifestTensor& tensor) const {
    asked_[static_cast<std::size_t>(&tensor - reader_.manifest().tensors.data())] = true;
  }

  const storage::CheckpointReader& reader_;
  mutable std::vector<bool> asked_;  // by tensor
  mutable std::set<std::string> differences_;
};

}  // namespace

struct CheckpointSaver::Impl {
  enum class Phase { idle, files, manifest };

  Impl(fs::path checkpoints, Options its_options)
      : folder(std::move(checkpoints)), options(std::move(its_options)) {}
  ~Impl() { wait(); }

  // Does the work in the background.
  void start(Phase next, const std::function<std::string()>& work) {
    phase = next;
    is_over = false;
    worker = std::thread([this, work] {
      failure = failure_of([&] { result = work(); });
      is_over = true;
    });
  }
  void wait() {
    if (worker.joinable()) worker.join();
  }

  storage::CheckpointFolder folder;
  Options options;
  storage::StagedShard shard;
  CheckpointInfo info;
  bool is_best = false;
  Phase phase = Phase::idle;
  std::thread worker;
  std::atomic<bool> is_over{true};
  // Of the work that is over:
  std::string failure;
  std::string result;
};

CheckpointSaver::CheckpointSaver(fs::path checkpoints, Options options)
    : impl_(std::make_unique<Impl>(std::move(checkpoints), std::move(options))) {
  // Nobody writes yet: the first begin() needs all replicas.
  if (axis_index(impl_->options.axis_name) == 0) impl_->folder.sweep();
}

CheckpointSaver::~CheckpointSaver() = default;

void CheckpointSaver::begin(const std::vector<Stateful*>& trainings, const CheckpointInfo& info,
                            bool is_best, std::source_location where) {
  finish(where);
  const AxisCall call{"CheckpointSaver::begin", impl_->options.axis_name, where};
  const CalledFrom scope(call);
  call.require(info.step >= 0, "the step is ", info.step);
  Impl& own = *impl_;
  own.info = info;
  own.is_best = is_best;
  own.shard.clear();
  // One replica's failure is told to all in advance().
  std::string failure;
  for (Stateful* const training : trainings) {
    training->visit_state(
        [&](const StatePiece& piece) {
          if (!failure.empty()) return;
          failure = failure_of([&] {
            own.shard.add(piece.name, dtype_of(piece), shape_of(piece),
                          static_cast<std::uint64_t>(piece.offset),
                          collectives::bytes_of(piece.values));
          });
        },
        where);
  }
  char name[64];
  std::snprintf(name, sizeof name, "shard-%05lld-of-%05lld.safetensors",
                static_cast<long long>(axis_index(own.options.axis_name)),
                static_cast<long long>(axis_size(own.options.axis_name)));
  own.start(Impl::Phase::files, [&own, failure, file = std::string(name)] {
    if (!failure.empty()) throw Error(failure);
    own.folder.begin(own.info.step);
    return written_text(own.shard.write(own.folder.unfinished(own.info.step) / file), own.shard);
  });
}

bool CheckpointSaver::is_ready() const {
  return impl_->phase != Impl::Phase::idle && impl_->is_over;
}

void CheckpointSaver::advance(std::source_location where) {
  Impl& own = *impl_;
  if (own.phase == Impl::Phase::idle) return;
  const AxisNames& axis = own.options.axis_name;
  const AxisCall call{"CheckpointSaver::advance", axis, where};
  const CalledFrom scope(call);
  own.wait();
  const bool is_end = std::exchange(own.phase, Impl::Phase::idle) == Impl::Phase::manifest;
  const std::string failure = first_failure(std::exchange(own.failure, ""), axis);
  if (!failure.empty()) {
    if (axis_index(axis) == 0) own.folder.sweep();
    barrier(axis);  // an error ends the job, and it would end the sweep
    throw Error(
        lockstep::str("the checkpoint of step ", own.info.step, " can't be saved: ", failure));
  }
  if (is_end) return;
  const auto written = training::texts_of_all(own.result, axis);
  own.start(Impl::Phase::manifest, [&own, written, is_first = axis_index(axis) == 0] {
    if (!is_first) return "";
    own.folder.publish(manifest_of(own.info, written));
    if (own.is_best) own.folder.set_best(own.info.step);
    if (own.options.keep > 0) own.folder.prune(own.options.keep);
    return "";
  });
}

void CheckpointSaver::finish(std::source_location where) {
  while (impl_->phase != Impl::Phase::idle) advance(where);
}

std::optional<std::int64_t> CheckpointSaver::pending() const {
  if (impl_->phase == Impl::Phase::idle) return std::nullopt;
  return impl_->info.step;
}

std::int64_t CheckpointSaver::staged_bytes() const {
  return static_cast<std::int64_t>(impl_->shard.bytes());
}

void save_checkpoint(const fs::path& checkpoints, const std::vector<Stateful*>& trainings,
                     const CheckpointInfo& info, const AxisNames& axis_name,
                     std::source_location where) {
  CheckpointSaver saver(checkpoints, {.axis_name = axis_name});
  saver.begin(trainings, info, /*is_best=*/false, where);
  saver.finish(where);
}

CheckpointInfo load_checkpoint(const fs::path& folder, const std::vector<Stateful*>& trainings,
                               const LoadOptions& options, const AxisNames& axis_name,
                               std::source_location where) {
  const AxisCall call{"load_checkpoint", axis_name, where};
  const CalledFrom scope(call);
  std::unique_ptr<storage::CheckpointReader> reader;
  const std::string own_failure = failure_of([&] {
    reader = std::make_unique<storage::CheckpointReader>(folder);
    const auto replicas = static_cast<std::size_t>(axis_size(axis_name));
    for (auto file = static_cast<std::size_t>(axis_index(axis_name));
         file < reader->manifest().files.size(); file += replicas) {
      reader->verify(file);
    }
  });
  const std::string failure = first_failure(own_failure, axis_name);
  if (!failure.empty()) throw DataError(failure);
  const ReaderSource source(*reader);
  for (Stateful* const training : trainings) training->restore_state(source, where);
  const std::vector<std::string> differences = source.differences(axis_name);
  if (!differences.empty()) {
    constexpr std::ptrdiff_t kMost = 20;
    const std::vector<std::string> shown(
        differences.begin(), differences.begin() + std::min(kMost, std::ssize(differences)));
    std::string text = lockstep::str("the checkpoint ", folder.string(),
                                     " does not fit this training: ", join(shown));
    if (differences.size() > shown.size()) {
      text += lockstep::str(" and ", differences.size() - shown.size(), " more");
    }
    if (!options.allow_differences) throw DataError(text);
    if (axis_index(axis_name) == 0) log_warning(text);
  }
  return info_of(reader->manifest());
}

CheckpointInfo checkpoint_info(const fs::path& folder) {
  return info_of(storage::CheckpointReader(folder).manifest());
}

void verify_checkpoint(const fs::path& folder) {
  storage::CheckpointReader(folder).verify();
}

std::optional<fs::path> newest_checkpoint(const fs::path& checkpoints) {
  const storage::CheckpointFolder folder(checkpoints);
  for (const std::int64_t step : folder.steps()) {
    const fs::path path = folder.of_step(step);
    try {
      verify_checkpoint(path);
      return path;
    } catch (const Error& error) {
      log_warning(lockstep::str("skipping a checkpoint: ", error.what()));
    }
  }
  return std::nullopt;
}

std::int64_t set_aside_checkpoints(const fs::path& checkpoints, std::int64_t step) {
  return storage::CheckpointFolder(checkpoints).set_aside_after(step);
}

}  // namespace lockstep
