#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/storage/file.h"
#include "framework/training/memory_prediction.h"

namespace lockstep {

/// One value of a metrics line. A double that is not finite is written as null, since JSON has no
/// word for it. A map is an object of numbers.
using MetricValue = std::variant<std::int64_t, double, std::string, std::map<std::string, double>>;

/// The double that prints as the shortest decimal that reads back as `value`: 0.16 for 0.16f, where
/// static_cast<double>(0.16f) prints as 0.1599999964237213.
[[nodiscard]] double shortest_decimal(float value);

/// `{"name": value, …}` in the order given, with its end. Throws ValueError for a name given twice.
[[nodiscard]] std::string metrics_line(
    const std::vector<std::pair<std::string, MetricValue>>& values);

/// Appends to metrics.jsonl in a run's folder, one JSON object a line. A line is handed to the
/// kernel at once: a process that dies leaves no half lines, and `tail -f` shows each when it is
/// due.
class MetricsWriter {
 public:
  /// Throws Error where the file can't be written.
  explicit MetricsWriter(const std::filesystem::path& folder);

  /// Writes metrics_line(values). Throws as it does, and as check_place().
  void write(const std::vector<std::pair<std::string, MetricValue>>& values) {
    write_line(metrics_line(values));
  }
  void write_line(const std::string& line);

  /// Waits until all lines are on the disk. Any thread.
  void sync() const { file_.sync(); }

  /// Throws Error if the file was moved or removed: new lines would be lost.
  void check_place() const;

 private:
  std::filesystem::path folder_;
  File file_;
};

/// Cuts metrics.jsonl in a run's folder behind the last line of a step up to `step`: for a run that
/// goes on from there. With `lines`, these are that step's lines from now on, whatever the file
/// has. What was written in part goes, too. Throws Error where it can't be done.
void cut_metrics(const std::filesystem::path& folder, std::int64_t step,
                 const std::optional<std::string>& lines = {});

/// The memory that a run took, and the prediction.
struct MemoryReport {
  HostMemoryUse predicted;
  HostMemoryUse measured;
  std::int64_t resident = 0;  // bytes that the host's replicas have in use more than at the start
  std::int64_t rest = 0;      // of these, what is in no category: activations, kept memory
  /// The most that a microbatch's forward and backward take for tensors on a replica, measured in
  /// the second step; 0: there was none.
  std::int64_t activations = 0;
  struct Replica {
    std::int64_t host = 0;
    std::int64_t resident = 0;  ///< its part of what its process has more in use than at the start
  };
  std::vector<Replica> replicas{};  ///< of all hosts, in their order
};

/// The best step of a run, by the figure of the validation set that its config names.
struct BestStep {
  std::int64_t step = 0;
  std::map<std::string, double> validation{};  // its figures, as far as they are known
  std::map<std::string, double> test{};  // of its weights; empty where there is no test set or none
  std::string checkpoint{};  // that has them, from the run's folder; empty: none is kept
};

/// The cluster's engine that has started a run.
struct EngineRecord {
  std::string name{};         ///< "slurm", as --engine takes it
  std::string job{};          ///< as the engine calls it; empty: it does not tell
  std::string step{};         ///< of the job; empty: it has none
  std::int64_t restarts = 0;  ///< how often the engine has started the job again, as far as it says
};

/// What a run came to, as result.json says it. Every field may be left out of a designated
/// initializer.
struct RunResult {
  std::int64_t steps = 0;
  std::int64_t skipped_steps = 0;  // of these
  std::int64_t replicas = 1;
  std::int64_t zero_stage = 0;
  double loss = 0.0;
  std::map<std::string, double> eval{};        // of the test set, after the last step
  std::map<std::string, double> validation{};  // of the validation set, if there is one
  std::optional<BestStep> best{};
  std::string weights{};  // with which all these figures were computed: "averaged"; empty: trained
  std::map<std::string, at::Tensor> parameters{};  // by name; of a model with few, or none
  std::string parameters_sha256{};
  std::string buffers_sha256{};  // of a model without buffers: empty
  std::optional<MemoryReport> memory{};
  std::int64_t threads_per_replica = 1;
  std::int64_t workers = 1;                   // how many replicas ran at once
  std::int64_t hosts = 1;                     // on which they ran
  std::vector<std::int64_t> replica_hosts{};  // the host of each replica; empty: there is one
  std::string launch{};                       // "processes" or "threads"
  std::string backend{};      // how bytes moved: "shared_memory", "gloo" or "shared_memory and tcp"
  std::string blas{};         // the BLAS that LibTorch computes with
  std::string libtorch{};     // its version
  std::string lockstep{};     // the version of this; empty: not known
  std::string cpu{};          // the name of host 0's; empty: the system does not say
  std::int64_t cores = 0;     // of it, which this process may use; 0: not known
  std::string command{};      // the command line, as command_text() makes it; empty: not known
  std::int64_t restarts = 0;  // of the job, after a replica was lost
  std::optional<EngineRecord> engine{};
  std::vector<std::string> changes{};  // of the config, where the run went on: "… was 4, is 2"
  std::vector<std::string> waived{};   // why the bits may differ from an uninterrupted run's
};

/// The text of result.json: the fields in the order of RunResult. `test` is `eval` once more, and
/// what is known of the best step's is `test_best`. `skipped_steps`, `validation`, `best`,
/// `test_best`, `weights`, `parameters`, `buffers_sha256`, `hosts` (of one), `replica_hosts`,
/// `lockstep`, `cpu`, `cores`, `command`, `restarts`, `engine`, `changes` and `waived` are left out
/// if empty. A tensor of one element is a number, others are nested lists. Numbers of float32 and
/// narrower are written as by shortest_decimal(); numbers that are not finite are null.
[[nodiscard]] std::string result_json(const RunResult& result);

/// Writes result.json into a run's folder, atomically, and warns of figures that are null. Throws
/// Error where it can't be written.
void write_result(const std::filesystem::path& folder, const RunResult& result);

/// Appends {"time": …, "event": "started", …} to a run's events (kEventsFile): its `steps` are
/// those done before, and the other fields those of result.json that say how it runs and on what.
/// Throws Error where it can't be written.
void note_start(const std::filesystem::path& folder, const RunResult& job);
/// The same of a warning that replicas wait long: {"time": …, "event": "stalled", "text": …}.
void note_stall(const std::filesystem::path& folder, const std::string& warning);

}  // namespace lockstep
