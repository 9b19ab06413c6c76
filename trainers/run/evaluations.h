#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "framework/checkpoint/checkpoint.h"
#include "framework/data/data.h"
#include "framework/telemetry/metrics.h"
#include "trainers/config/config.h"
#include "trainers/run/evaluate.h"
#include "trainers/run/resume.h"

namespace lockstep {

/// Names the figures of the test set that the best checkpoint's weights have.
inline const std::string kTestBest = "test_best";

/// How the names of a set's figures begin in metrics and checkpoints.
[[nodiscard]] inline const std::string& prefix_of(const std::string& set) {
  if (set == kTestBest) return kTestBestFigures;
  return set == kTestSet ? kEvalFigures : kValidationFigures;
}

/// Which evaluations of the last step are still to come, the last figures of a run's sets, and for
/// how many evaluations those of the validation set have not got better. The same on all replicas;
/// one thread.
class Evaluations {
 public:
  /// All must live as long.
  Evaluations(const Config& config, const DataSets& data, const Objective& objective)
      : config_(config), data_(data), objective_(objective) {}

  /// The last step is still to be evaluated on the set, if the run has it; on both; on it no more.
  void owe(const std::string& set);
  void owe_both();
  void drop(const std::string& set) { owed_.erase(set); }
  [[nodiscard]] bool owes(const std::string& set) const { return owed_.contains(set); }
  /// Notes an evaluation, which is no longer owed. Returns whether it was owed, of the validation
  /// set, and the best so far: one that was not owed decides nothing.
  bool note(const std::string& set, const Figures& figures, std::int64_t step);
  /// The figures of a set, or of kTestBest, if they are of this step; otherwise none.
  [[nodiscard]] Figures of(const std::string& set, std::int64_t step) const;
  /// The best step as far as the validation set's figure tells. None before it has decided.
  [[nodiscard]] std::optional<BestStep> best() const;
  /// The figure by which the validation set decides, if it is better than `than`.
  [[nodiscard]] std::optional<double> better(const Figures& figures,
                                             std::optional<double> than) const;
  /// Whether the config's patience is at its end.
  [[nodiscard]] bool are_without_progress() const;
  /// Whether an evaluation has had the word in what the best one is.
  [[nodiscard]] bool have_decided() const { return patience_.evaluations > 0 || patience_.best; }
  /// For people: since when the validation set's figure has not become better.
  [[nodiscard]] std::string progress_text() const;

  /// Writes all of it into what a checkpoint says, and goes on from that.
  void add_to(CheckpointInfo& info) const;
  void go_on(const CheckpointInfo& info);

 private:
  // How long the validation set's figure has not become better.
  struct Patience {
    std::optional<double> best = {};
    std::int64_t evaluations = 0;  // since then
    std::int64_t step = 0;         // of the best figure
  };

  struct Last {
    Figures figures = {};
    std::int64_t step = 0;
  };

  // By which the validation set decides.
  [[nodiscard]] const std::string& deciding_metric() const;

  const Config& config_;
  const DataSets& data_;
  const Objective& objective_;
  std::set<std::string> owed_;
  std::map<std::string, Last> last_{{kValidationSet, {}}, {kTestSet, {}}, {kTestBest, {}}};
  Patience patience_;
};

}  // namespace lockstep
