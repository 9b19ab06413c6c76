#include "framework/checkpoint/checkpoint.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <future>
#include <limits>
#include <set>
#include <span>
#include <stop_token>
#include <system_error>
#include <utility>

#include <ATen/ops/zeros.h>
#include <nlohmann/json.hpp>

#include "framework/axes/environment.h"
#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/record.h"
#include "framework/base/text.h"
#include "framework/checkpoint/meeting.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/message.h"
#include "framework/collectives/psum.h"
#include "framework/formats/json_text.h"
#include "framework/storage/checkpoint_folder.h"
#include "framework/storage/checkpoint_reader.h"
#include "framework/storage/checksum.h"
#include "framework/storage/staged_shard.h"
#include "framework/timeline/recorder.h"
#include "framework/training/agreement.h"
#include "framework/training/trainer_call.h"

namespace fs = std::filesystem;

namespace lockstep {
namespace {

using Json = nlohmann::json;

// What the training waits for of a checkpoint.
timeline::RecordedSpan recorded(std::int64_t step) {
  return {timeline::track_here,
          {.kind = timeline::SpanKind::checkpoint, .id = static_cast<std::uint64_t>(step)}};
}

std::string dtype_of(const StatePiece& piece) {
  const auto type = collectives::find_element_type(piece.values.scalar_type());
  if (type) return std::string(names_of(*type).stored);
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

struct Outcome {
  std::string own;      // what this replica's work has returned
  std::string failure;  // of the first replica whose work has failed; "" if none has
};

// Waits for the end of all replicas' work, which may take any time on a slow disk: replicas tell
// each other that they are still there. All replicas together.
Outcome ended(std::future<std::string>& work, const AxisNames& axis_name) {
  constexpr std::chrono::seconds kPatience{1};
  for (bool is_over = false; !is_over;) {
    const bool own = work.wait_for(kPatience) == std::future_status::ready;
    is_over = pmin(at::zeros({}, at::kInt).fill_(own ? 1 : 0), axis_name).item<int>() == 1;
  }
  Outcome outcome;
  outcome.failure = first_failure(failure_of([&] { outcome.own = work.get(); }), axis_name);
  return outcome;
}

// The file of this replica.
std::string shard_name(const AxisNames& axis) {
  return formatted("shard-%05lld-of-%05lld.safetensors", static_cast<long long>(axis_index(axis)),
                   static_cast<long long>(axis_size(axis)));
}

// The text of a manifest that has the figures which are no numbers for JSON: {"loss": "nan"}.
const std::string kNotFiniteText = "not_finite";

void check_info(const AxisCall& call, const CheckpointInfo& info) {
  call.require(info.step >= 0, "the step is ", info.step);
  call.require(!info.texts.contains(kNotFiniteText), "CheckpointInfo::texts has '", kNotFiniteText,
               "', where checkpoints keep figures that are not finite: give it another name");
}

// Has the manifest say what `info` says, in figures that are finite.
void describe(const CheckpointInfo& info, storage::Manifest& manifest) {
  manifest.counts = info.counts;
  manifest.figures.clear();
  manifest.texts = info.texts;
  Json others;
  for (const auto& [name, value] : info.figures) {
    if (std::isfinite(value)) {
      manifest.figures[name] = value;
    } else {
      others[name] = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    }
  }
  if (!others.empty()) manifest.texts[kNotFiniteText] = others.dump();
}

void take_figures(CheckpointInfo& info) {
  const auto text = info.texts.find(kNotFiniteText);
  if (text == info.texts.end()) return;
  const Json others = formats::parse_json<Json>(text->second);
  if (!others.is_object()) return;  // a program's own, from before the name was kept for figures
  for (const auto& [name, value] : others.items()) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (value == "nan") info.figures[name] = std::numeric_limits<double>::quiet_NaN();
    if (value == "inf") info.figures[name] = kInfinity;
    if (value == "-inf") info.figures[name] = -kInfinity;
  }
  info.texts.erase(text);
}

storage::Manifest manifest_of(const CheckpointInfo& info, const std::vector<std::string>& written) {
  storage::Manifest manifest{.step = info.step, .replicas = std::ssize(written)};
  describe(info, manifest);
  storage::add_parts(manifest, written);
  return manifest;
}

CheckpointInfo info_of(const storage::Manifest& manifest) {
  CheckpointInfo info{.step = manifest.step,
                      .counts = manifest.counts,
                      .figures = manifest.figures,
                      .texts = manifest.texts,
                      .replicas = manifest.replicas};
  take_figures(info);
  return info;
}

// Whether another replica has ended. One that has called another collective has only noticed it.
bool has_ended(const comm::Cancellation& cancellation) {
  const std::exception_ptr error = cancellation.reason();
  return error && error_kind(error) != ErrorKind::mismatch;
}

// A checkpoint as a training's StateSource. It notes what does not fit; the values then stay.
class ReaderSource final : public StateSource {
 public:
  explicit ReaderSource(const storage::CheckpointReader& reader)
      : reader_(reader), asked_(reader.manifest().tensors.size(), false) {}

  [[nodiscard]] bool has(const std::string& name) const override { return find(name) != nullptr; }

  bool read(const StatePiece& piece) const override {
    const storage::ManifestTensor* const tensor = find(piece.name);
    if (tensor == nullptr) {
      differences_.insert(lockstep::str("'", piece.name, "' is missing"));
      return false;
    }
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
    for (const std::string& text : training::texts_of_all(encode(differences_), axis_name)) {
      of_any.merge(decode<std::set<std::string>>(text, "what does not fit a replica"));
    }
    std::vector<std::string> all(of_any.begin(), of_any.end());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (asked.data_ptr<std::int32_t>()[i] != 0) continue;
      all.push_back(lockstep::str("'", tensors[i].name, "' is unexpected"));
    }
    return all;
  }

 private:
  [[nodiscard]] const storage::ManifestTensor* find(const std::string& name) const {
    const storage::ManifestTensor* const tensor = reader_.find(name);
    const auto* const first = reader_.manifest().tensors.data();
    if (tensor != nullptr) asked_[static_cast<std::size_t>(tensor - first)] = true;
    return tensor;
  }

  const storage::CheckpointReader& reader_;
  mutable std::vector<bool> asked_;  // by tensor
  mutable std::set<std::string> differences_;
};

}  // namespace

struct CheckpointSaver::Impl {
  enum class Phase { idle, files, manifest };

  // What replicas tell each other that save apart.
  struct Told {
    std::int64_t step = 0;
    std::string failure{};
    std::string written{};  // their part; none if it is the one that was under way
    std::optional<std::pair<std::int64_t, std::string>> under_way{};  // its step, and their part
    LOCKSTEP_FIELDS(step, failure, written, under_way)
  };

  Impl(const fs::path& checkpoints, Options its_options)
      : folder(checkpoints), options(std::move(its_options)) {}

  storage::CheckpointFolder folder;
  Options options;
  storage::StagedShard shard;
  CheckpointInfo info;
  bool is_best = false;
  Phase phase = Phase::idle;
  std::stop_source stop;          // nobody waits for the checkpoint any more
  std::future<std::string> work;  // of the phase; its end waits for it

  // Begins a phase, whose work is done in the background.
  void start(Phase its, std::function<std::string()> does) {
    phase = its;
    work = std::async(std::launch::async, std::move(does));
  }

  void publish(const storage::Manifest& manifest) const {
    if (options.before_publish) options.before_publish();
    folder.publish(manifest);
    after_publish(info.step, is_best);
  }

  // The checkpoint is there, whatever happens here.
  void after_publish(std::int64_t step, bool becomes_best) const {
    const std::string failure = failure_of([&] {
      if (becomes_best) folder.set_best(step);
      if (options.keep > 0) folder.prune(options.keep);
    });
    if (failure.empty()) return;
    log_warning(lockstep::str("the checkpoint of step ", step, " is saved, but ", failure));
  }

  // Copies what `visit` visits, and returns what went wrong.
  std::string stage(const std::function<void(const VisitState& visit)>& visit) {
    shard.clear();
    std::string failure;
    std::set<std::string> names;
    visit([&](const StatePiece& piece) {
      if (!failure.empty()) return;
      failure = failure_of([&] {
        require(names.insert(piece.name).second, "two of the trainings have a tensor '", piece.name,
                "': NamedTraining gives each a name of its own");
        shard.add(piece.name, dtype_of(piece), shape_of(piece),
                  static_cast<std::uint64_t>(piece.offset), collectives::bytes_of(piece.values));
      });
    });
    return failure;
  }

  // Writes this replica's file, and returns its part of the manifest for the others.
  std::string write(std::int64_t step, const fs::path& file, const std::stop_token& token) const {
    folder.begin(step);
    return encode(
        storage::ManifestPart(shard.write(folder.unfinished(step) / file, token), shard.tensors()));
  }

  // Ends this replica's part of the save that is under way. Returns what it has written, if the
  // others still have to know.
  std::optional<std::string> end_part() {
    const Phase last = std::exchange(phase, Phase::idle);
    std::optional<std::string> written;
    if (last == Phase::idle) return written;
    (void)failure_of([&] {
      std::string text = work.get();
      if (last == Phase::files) written = std::move(text);
    });
    return written;
  }

  Apart save_apart(const std::function<void(const VisitState& visit)>& visit,
                   const CheckpointInfo& its_info, const std::string& why) {
    groups::Member& member = current_environment()->member();
    member.slot->threw(why);
    const AxisNames& axis = options.axis_name;
    const std::int64_t replica = axis_index(axis);
    if (has_ended(*member.cancellation)) return {.reason = "another replica has ended"};
    folder.begin(its_info.step);
    const checkpoint::Meeting meeting(
        folder.path() / lockstep::str(".step-meeting-", options.meeting, ".tmp"), replica,
        axis_size(axis), [&] { return has_ended(*member.cancellation); });
    meeting.arrive();
    Told told{.step = its_info.step};
    if (auto written = end_part()) told.under_way = {info.step, std::move(*written)};
    told.failure = failure_of([&] {
      if (told.under_way && info.step == its_info.step) return;
      const std::string unstaged = stage(visit);
      if (!unstaged.empty()) throw Error(unstaged);
      told.written = write(its_info.step, shard_name(axis), {});
    });
    meeting.tell(encode(told));
    const std::chrono::milliseconds patience = member.timeout;
    Apart apart{.reason = "replica 0 has not come to save its part"};
    if (replica == 0) {
      apart = publish_apart(its_info, meeting.hear(patience));
      meeting.conclude(encode(std::tie(apart.is_saved, apart.reason)));
    } else if (const auto outcome = meeting.outcome(2 * patience)) {
      std::tie(apart.is_saved, apart.reason) =
          decode<std::pair<bool, std::string>>(*outcome, "what replica 0 has concluded");
    }
    if (!apart.is_saved) {
      // What this replica has written; the last removes the folder.
      std::error_code ignored;
      fs::remove(folder.unfinished(its_info.step) / shard_name(axis), ignored);
      fs::remove(folder.unfinished(its_info.step), ignored);
    }
    meeting.leave();
    return apart;
  }

  [[nodiscard]] Apart publish_apart(const CheckpointInfo& its_info,
                                    const std::vector<std::optional<std::string>>& texts) const {
    std::vector<std::string> written;
    std::vector<std::string> under_way;
    for (std::size_t replica = 0; replica < texts.size(); ++replica) {
      const auto fail = [&](const auto&... reason) {
        return Apart{.reason = lockstep::str("replica ", replica, reason...)};
      };
      if (!texts[replica]) return fail(" has not come to save its part");
      const auto told =
          decode<Told>(*texts[replica], lockstep::str("what replica ", replica, " tells"));
      if (!told.failure.empty()) return fail(": ", told.failure);
      if (told.step != its_info.step) {
        return fail(" has done ", counted(told.step, "step"), ", and replica 0 ", its_info.step);
      }
      written.push_back(told.written);
      if (told.under_way && told.under_way->first == info.step) {
        under_way.push_back(told.under_way->second);
      }
    }
    Apart apart;
    if (under_way.size() == texts.size()) {
      apart.reason = failure_of([&] { publish(manifest_of(info, under_way)); });
    }
    if (std::ranges::count(folder.steps(), its_info.step) > 0) return {.is_saved = true};
    if (std::ranges::count(written, "") > 0) {
      if (apart.reason.empty()) apart.reason = "replicas were at different places of a save";
      return apart;
    }
    apart.reason = failure_of([&] {
      if (options.before_publish) options.before_publish();
      folder.publish(manifest_of(its_info, written));
    });
    apart.is_saved = apart.reason.empty();
    return apart;
  }
};

CheckpointSaver::CheckpointSaver(const fs::path& checkpoints, Options options)
    : impl_(std::make_unique<Impl>(checkpoints, std::move(options))) {}

// A replica that has failed tells the others once it is over: not after gigabytes.
CheckpointSaver::~CheckpointSaver() {
  impl_->stop.request_stop();
}

void CheckpointSaver::begin(const std::vector<Stateful*>& trainings, const CheckpointInfo& info,
                            bool is_best, std::source_location where) {
  finish(where);
  Impl& own = *impl_;
  const AxisNames& axis = own.options.axis_name;
  const auto span = recorded(info.step);
  const training::TrainerCall call({"CheckpointSaver::begin", axis, where});
  check_info(call, info);
  own.info = info;
  own.is_best = is_best;
  own.shard.clear();
  // A replica that has thrown never comes here: it may be writing its part (save_apart), which the
  // sweep would remove.
  barrier(axis);
  // What fails on one replica is told to all in advance().
  std::string failure;
  if (axis_index(axis) == 0) failure = failure_of([&] { own.folder.sweep(); });
  barrier(axis);  // no replica writes before the sweep is over
  const std::string unstaged = own.stage([&](const VisitState& visit) {
    for (Stateful* const training : trainings) training->visit_state(visit, where);
  });
  if (failure.empty()) failure = unstaged;
  own.start(Impl::Phase::files, [&own, failure, file = shard_name(axis)] {
    if (!failure.empty()) throw Error(failure);
    return own.write(own.info.step, file, own.stop.get_token());
  });
}

bool CheckpointSaver::is_ready() const {
  return impl_->phase != Impl::Phase::idle &&
         impl_->work.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

void CheckpointSaver::advance(std::source_location where) {
  Impl& own = *impl_;
  if (own.phase == Impl::Phase::idle) return;
  const AxisNames& axis = own.options.axis_name;
  const auto span = recorded(own.info.step);
  const training::TrainerCall call({"CheckpointSaver::advance", axis, where});
  const Outcome outcome = ended(own.work, axis);
  const bool is_end = std::exchange(own.phase, Impl::Phase::idle) == Impl::Phase::manifest;
  if (!outcome.failure.empty()) {
    if (axis_index(axis) == 0) sweep_checkpoints(own.folder.path());
    barrier(axis);  // another replica's error could end the job in the middle of the sweep
    throw Error(lockstep::str("the checkpoint of step ", own.info.step,
                              " can't be saved: ", outcome.failure));
  }
  if (is_end) return;
  const auto written = training::texts_of_all(outcome.own, axis);
  own.start(Impl::Phase::manifest, [&own, written, is_first = axis_index(axis) == 0] {
    if (is_first) own.publish(manifest_of(own.info, written));
    return std::string();
  });
}

void CheckpointSaver::finish(std::source_location where) {
  while (impl_->phase != Impl::Phase::idle) advance(where);
}

std::optional<std::int64_t> CheckpointSaver::pending() const {
  if (impl_->phase == Impl::Phase::idle) return std::nullopt;
  return impl_->info.step;
}

void CheckpointSaver::amend(const CheckpointInfo& info, bool is_best, std::source_location where) {
  finish(where);
  Impl& own = *impl_;
  const AxisNames& axis = own.options.axis_name;
  const auto span = recorded(info.step);
  const training::TrainerCall call({"CheckpointSaver::amend", axis, where});
  check_info(call, info);
  std::string failure;
  if (axis_index(axis) == 0) {
    failure = failure_of([&] {
      if (own.options.before_publish) own.options.before_publish();
      storage::Manifest manifest =
          storage::CheckpointReader(own.folder.of_step(info.step)).manifest();
      describe(info, manifest);
      own.folder.amend(manifest);
    });
    if (failure.empty()) own.after_publish(info.step, is_best);
  }
  failure = first_failure(failure, axis);
  lockstep::require<Error>(failure.empty(), "the checkpoint of step ", info.step,
                           " can't be completed: ", failure);
}

CheckpointSaver::Apart CheckpointSaver::save_apart(
    const std::function<void(const VisitState& visit)>& visit, const CheckpointInfo& info,
    const std::string& why) noexcept {
  Apart result;
  const std::string failure = failure_of([&] {
    const AxisNames& axis = impl_->options.axis_name;
    check_info({"CheckpointSaver::save_apart", axis, std::source_location::current()}, info);
    result = impl_->save_apart(visit, info, why);
  });
  if (!failure.empty()) result = {.reason = failure};
  // All have left, or never come.
  const bool is_first = axis_index(impl_->options.axis_name) == 0;
  if (is_first) (void)failure_of([&] { impl_->folder.sweep(); });
  return result;
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
  const training::TrainerCall call({"load_checkpoint", axis_name, where});
  std::unique_ptr<storage::CheckpointReader> reader;
  auto verified = std::async(
      std::launch::async, [&, replica = axis_index(axis_name), replicas = axis_size(axis_name)] {
        reader = std::make_unique<storage::CheckpointReader>(folder);
        const auto& files = reader->manifest().files;
        storage::Checksum all;
        for (std::size_t file = 0; file < files.size(); ++file) {
          all.add(std::as_bytes(std::span(files[file].checksum)));
          if (std::cmp_equal(file % static_cast<std::size_t>(replicas), replica)) {
            reader->verify(file);
          }
        }
        return all.text();
      });
  const Outcome outcome = ended(verified, axis_name);
  if (!outcome.failure.empty()) throw DataError(outcome.failure);
  // A link may have come to lead elsewhere meanwhile.
  for (const std::string& other : training::texts_of_all(outcome.own, axis_name)) {
    lockstep::require<DataError>(other == outcome.own, folder.string(),
                                 " is not the same for all replicas");
  }
  const ReaderSource source(*reader);
  for (Stateful* const training : trainings) training->restore_state(source, where);
  const std::vector<std::string> differences = source.differences(axis_name);
  if (!differences.empty()) {
    const std::string text = lockstep::str("the checkpoint ", folder.string(),
                                           " does not fit this training: ", listed(differences));
    if (!options.allow_differences) throw DataError(text);
    if (axis_index(axis_name) == 0) log_warning(text + "; all of these are left out");
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

void set_best_checkpoint(const fs::path& checkpoints, std::int64_t step) {
  const storage::CheckpointFolder folder(checkpoints);
  const bool is_there = std::ranges::count(folder.steps(), step) > 0;
  if (is_there && folder.best() != step) folder.set_best(step);
}

void sweep_checkpoints(const fs::path& checkpoints) {
  const std::string left = failure_of([&] { storage::CheckpointFolder(checkpoints).sweep(); });
  if (!left.empty()) log_warning(left);
}

}  // namespace lockstep
