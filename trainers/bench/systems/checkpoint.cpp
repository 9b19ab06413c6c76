#include "framework/checkpoint/checkpoint.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <fcntl.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/memory.h"
#include "framework/base/random.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/maps/tensor_memory.h"
#include "framework/storage/checksum.h"
#include "framework/storage/file.h"
#include "framework/timeline/recorder.h"
#include "framework/training/zero.h"
#include "models/layers.h"
#include "trainers/bench/systems/tasks.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kWidth = 2048;
constexpr double kRate = 1e-3;
constexpr std::int64_t kStateBytesAParameter = 12;  // in float32, with Adam's two moments
constexpr const char* kStagePrefix = "stage ";

// Layers with a matrix and a vector each, as large ones have them; a vector has the rest. Peers
// have the same.
class Layers : public torch::nn::Module {
 public:
  explicit Layers(std::int64_t parameters) {
    constexpr std::int64_t kLayer = kWidth * kWidth + kWidth;
    for (std::int64_t i = 0; i < parameters / kLayer; ++i) {
      add(str("weight", i), {kWidth, kWidth});
      add(str("bias", i), {kWidth});
    }
    if (parameters % kLayer > 0) add("rest", {parameters % kLayer});
  }

 private:
  void add(const std::string& name, const std::vector<std::int64_t>& sizes) {
    register_parameter(name, uniform(sizes, 1, Key(0).fold(name)));
  }
};

// As the job's recorder has them.
double seconds_of(const std::function<void()>& work) {
  timeline::Recorder::Track& track = *timeline::track_here;
  const auto recorded = [&](std::uint64_t after) {
    return track.read(after, timeline::Recorder::Names::left_out);
  };
  const std::uint64_t before = recorded(std::numeric_limits<std::uint64_t>::max()).begun;
  {
    const timeline::RecordedSpan span(&track, {.kind = timeline::SpanKind::checkpoint});
    work();
  }
  const auto spans = recorded(before).spans;
  require<Error>(!spans.empty() && spans.front().number == before + 1,
                 "what was timed had more spans than the recorder keeps");
  return static_cast<double>(spans.front().end - spans.front().begin) * 1e-9;
}

// Seconds of `work`, and the peak of memory in it beyond `before`.
struct Cost {
  double seconds = 0;
  double bytes = 0;
};
Cost cost_of(std::int64_t before, const std::function<void()>& work) {
  forget_peak();
  const double seconds = seconds_of(work);
  const std::int64_t more = resident_bytes("VmHWM") - before;
  return {.seconds = seconds, .bytes = static_cast<double>(std::max<std::int64_t>(more, 0))};
}

class CheckpointTask : public ReplicaTask {
 public:
  void barrier() override { lockstep::barrier(kAxis); }
  std::vector<double> parts() override { return std::exchange(parts_, {}); }

 protected:
  std::vector<double> parts_;
};

// Saves and loads the state of a training again and again.
class Saving : public CheckpointTask {
 public:
  Saving(int stage, fs::path folder)
      : options_({.axis_name = kAxis, .stage = stage, .optimizer = {.name = "adam", .lr = kRate}}),
        folder_(std::move(folder)) {}

  std::string prepare(const std::string& operation, std::int64_t parameters) override {
    reloads_ = operation == "reload";
    const auto bare = static_cast<std::int64_t>(resident_memory());
    trainer_.reset();
    model_.emplace(parameters);
    trainer_.emplace(*model_, options_);
    step();
    step();     // what is kept for later steps is there from here on
    barrier();  // pages that replicas share count for each in part, once all have them
    held_ = static_cast<std::int64_t>(resident_memory()) - bare;
    at_start_ = resident_bytes("VmRSS");
    barrier();
    saver_.emplace(folder_, CheckpointSaver::Options{.keep = 0, .axis_name = kAxis});
    if (reloads_) return "";
    const std::string saved = digest();
    save();
    step();
    load();
    if (digest() != saved) throw Error("what is loaded is not what was saved");
    return str("predicted for the copy that it keeps: ",
               kStateBytesAParameter * parameters / axis_size(kAxis) >> 20, " MiB a replica");
  }

  void call() override {
    if (reloads_) return reload();
    if (axis_index(kAxis) == 0) fs::remove_all(folder_ / fs::read_symlink(folder_ / "latest"));
    barrier();
    double pause = 0;
    const Cost saving = cost_of(at_start_, [&] { pause = save(); });
    barrier();
    const Cost loading = cost_of(resident_bytes("VmRSS"), [&] { load(); });
    parts_ = {saving.seconds, pause, loading.seconds, saving.bytes, loading.bytes};
  }

 private:
  // Afterwards all of the state has other values, and the training holds no more than its state.
  void step() {
    Tensor loss = at::zeros({});
    for (const Tensor& parameter : model_->parameters())
      loss = loss + (parameter * parameter).sum();
    trainer_->backward(loss);
    trainer_->step(kRate);
    loss.reset();
    maps::TensorMemory::release();
  }

  // Of this replica's part.
  [[nodiscard]] std::string digest() {
    storage::Checksum checksum;
    trainer_->visit_state([&](const StatePiece& piece) {
      checksum.add({static_cast<const std::byte*>(piece.values.data_ptr()), piece.values.nbytes()});
    });
    return checksum.text();
  }

  // Returns the seconds of the pause.
  double save() {
    ++saves_;
    const double pause = seconds_of([&] { saver_->begin({&*trainer_}, {.step = saves_}); });
    saver_->finish();
    return pause;
  }
  void load() { load_checkpoint(folder_ / "latest", {&*trainer_}, {}, kAxis); }

  // Another number of replicas saves in its turn what it has loaded.
  void reload() {
    const Cost loading = cost_of(resident_bytes("VmRSS"), [&] { load(); });
    (void)save();
    const ReplicaPlacement placement{.replicas = axis_size(kAxis)};
    const std::int64_t on_host = predicted_memory(*model_, options_, placement).host.total();
    parts_ = {loading.seconds, loading.bytes, static_cast<double>(held_),
              static_cast<double>(on_host / placement.replicas)};
  }

  ZeroOptions options_;
  fs::path folder_;
  bool reloads_ = false;
  std::optional<Layers> model_;
  std::optional<ZeroTrainer> trainer_;
  std::optional<CheckpointSaver> saver_;
  std::int64_t saves_ = 0;
  std::int64_t at_start_ = 0;  // resident bytes, before the first save
  std::int64_t held_ = 0;
};

// The bytes of a replica's part, and nothing else.
class Limits : public CheckpointTask {
 public:
  explicit Limits(fs::path folder) : folder_(std::move(folder)) {}

  std::string prepare(const std::string&, std::int64_t parameters) override {
    const Range share =
        shard(kStateBytesAParameter * parameters, axis_size(kAxis), axis_index(kAxis));
    from_.assign(static_cast<std::size_t>(share.size), std::byte{1});
    to_ = from_;
    path_ = folder_ / str("part", axis_index(kAxis));
    call();
    parts_ = {};
    return "";
  }

  void call() override {
    parts_ = {seconds_of([&] { write(); })};
    for (const auto& work : {&Limits::read, &Limits::copy, &Limits::add_up}) {
      barrier();
      parts_.push_back(seconds_of([&] { (this->*work)(); }));
    }
    fs::remove(path_);
  }

 private:
  static constexpr std::size_t kPart = std::size_t{8} << 20;

  void write() {
    const File file(path_, O_CREAT | O_WRONLY | O_TRUNC);
    for (std::size_t at = 0; at < from_.size(); at += kPart) {
      const std::size_t size = std::min(kPart, from_.size() - at);
      file.write({reinterpret_cast<const char*>(from_.data()) + at, size});
      file.begin_sync(at, size);
    }
    file.sync();
    File(folder_, O_RDONLY | O_DIRECTORY).sync();
  }
  void read() { File(path_, O_RDONLY).read(0, to_); }
  void copy() { std::ranges::copy(from_, to_.begin()); }
  void add_up() {
    storage::Checksum checksum;
    checksum.add(from_);
    if (checksum.text().empty()) throw Error("there is no checksum");
  }

  fs::path folder_;
  fs::path path_;
  std::vector<std::byte> from_;
  std::vector<std::byte> to_;
};

}  // namespace

std::unique_ptr<ReplicaTask> make_checkpoint(const std::string& way) {
  const char* const folder = std::getenv("LOCKSTEP_BENCH_FOLDER");
  require(folder != nullptr, "LOCKSTEP_BENCH_FOLDER is not set");
  if (way == "limits") return std::make_unique<Limits>(folder);
  return std::make_unique<Saving>(std::stoi(way.substr(std::string(kStagePrefix).size())), folder);
}

}  // namespace lockstep::bench
