#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "framework/data/dataset.h"
#include "framework/training/zero.h"
#include "models/model.h"
#include "trainers/config/config.h"
#include "trainers/run/evaluate.h"
#include "trainers/run/evaluation_record.h"
#include "trainers/run/reporter.h"
#include "trainers/run/run_report.h"
#include "trainers/run/run_state.h"

namespace lockstep {

/// Evaluates a run's sets by the parameters that evaluations take. Pictures are shown where they
/// are taken for other classes, and the run's report shows what an evaluation has seen. One on each
/// replica; one thread.
class Evaluator {
 public:
  /// All must live as long. The replica that writes has a report, as the config says.
  Evaluator(const Config& config, const Objective& objective, Model& model, ZeroTrainer& trainer,
            Reporter& reporter, std::optional<RunReport>& report)
      : config_(config),
        objective_(objective),
        model_(model),
        trainer_(trainer),
        reporter_(reporter),
        report_(report) {}

  /// The figures of a set after the last step. Where the parameters' averages have them, also those
  /// of the parameters themselves, if the two differ much. None where a signal asks the run to stop
  /// meanwhile. All replicas together.
  [[nodiscard]] std::pair<Figures, Figures> figures(const RunState& state, const std::string& set,
                                                    const Dataset& data);

 private:
  Figures shown_figures(const RunState& state, const std::string& set, const Dataset& data);
  void tell_report(const RunState& state, const std::string& set, const Dataset& data,
                   const EvaluationRecord& record);
  [[nodiscard]] std::int64_t bytes_of_texts(const RunState& state, const Dataset& data) const;

  const Config& config_;
  const Objective& objective_;
  Model& model_;
  ZeroTrainer& trainer_;
  Reporter& reporter_;
  std::optional<RunReport>& report_;
};

}  // namespace lockstep
