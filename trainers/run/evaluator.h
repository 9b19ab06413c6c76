#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "framework/data/dataset.h"
#include "framework/training/zero.h"
#include "models/model.h"
#include "trainers/config/config.h"
#include "trainers/run/evaluate.h"
#include "trainers/run/evaluation_record.h"
#include "trainers/run/reporter.h"
#include "trainers/run/run_state.h"

namespace lockstep {

/// Evaluates a run's sets by the parameters that evaluations take. Pictures of the run's own model
/// are shown where they are taken for other classes. One on each replica; one thread.
class Evaluator {
 public:
  /// All must live as long. The replica that writes has a report, as the config says.
  Evaluator(const Config& config, const Objective& objective, Model& model, ZeroTrainer& trainer,
            Reporter& reporter)
      : config_(config),
        objective_(objective),
        model_(model),
        trainer_(trainer),
        reporter_(reporter) {}

  struct Evaluated {
    Figures figures{};
    /// Where the parameters' averages have these, those of the parameters themselves, if the two
    /// differ much.
    Figures trained{};
    nlohmann::ordered_json record{};  ///< for RunReport::note_evaluation(), on replica 0; or null
  };

  /// A set after the last step. No figures where a signal asks the run to stop meanwhile. All
  /// replicas together.
  [[nodiscard]] Evaluated evaluated(const RunState& state, const std::string& set,
                                    const Dataset& data);
  /// The same of another model's parameters, those of step `state.steps`. No signal ends it.
  [[nodiscard]] Evaluated evaluated(Model& model, const RunState& state, const std::string& set,
                                    const Dataset& data);

 private:
  [[nodiscard]] std::int64_t bytes_of_texts(const RunState& state, const Dataset& data) const;

  const Config& config_;
  const Objective& objective_;
  Model& model_;
  ZeroTrainer& trainer_;
  Reporter& reporter_;
};

}  // namespace lockstep
