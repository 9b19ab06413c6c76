#include "trainers/run/evaluator.h"

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/base/range.h"
#include "trainers/config/config_options.h"
#include "trainers/run/stop_agreement.h"
#include "trainers/run/text_samples.h"
#include "trainers/run/wrong_pictures.h"

namespace lockstep {

Evaluator::Evaluated Evaluator::evaluated(const RunState& state, const std::string& set,
                                          const Dataset& data) {
  if (evaluated_values(config_) == ParameterValues::trained) {
    return evaluated(model_, state, set, data);
  }
  // Each time: in a warm-up the two come to differ only later.
  StopAgreement stop(config_.launch.axis_name);
  Figures trained = evaluate(model_, data, objective_, config_.data_use.batch_size,
                             config_.launch.axis_name, [&] { return stop.is_asked(); });
  if (trained.empty()) return {};
  const auto averages = trainer_.averaged_parameters();
  Evaluated averaged = evaluated(model_, state, set, data);
  if (averaged.figures.empty()) return {};
  if (differ_much(averaged.figures, trained)) averaged.trained = std::move(trained);
  return averaged;
}

// Evaluates by the parameters as they are.
Evaluator::Evaluated Evaluator::evaluated(Model& model, const RunState& state,
                                          const std::string& set, const Dataset& data) {
  std::vector<NamedTally> tallies(objective_.metrics.begin(), objective_.metrics.end());
  const bool is_own = &model == &model_;
  const bool shows = is_own && config_.telemetry.tensorboard && are_pictures(data.type());
  if (shows) tallies.emplace_back("predicted classes", make_predicted_classes());
  EvaluationRecord record(data, *objective_.loss);
  TakeBatch take;
  if (config_.telemetry.report) {
    take = [&](const auto&... batch) { record.add(batch...); };
  }
  StopAgreement stop(config_.launch.axis_name);
  const std::vector<at::Tensor> counted =
      tallied(model, data, tallies, config_.data_use.batch_size, config_.launch.axis_name,
              objective_.scales, take, [&] { return is_own && stop.is_asked(); });
  if (counted.empty()) return {};
  if (shows && reporter_.summary() != nullptr) {
    reporter_.add_pictures(state, wrong_pictures(set, data, counted.back(), *objective_.loss));
  }
  Evaluated evaluated{.figures = figures_of(objective_, counted)};
  if (!config_.telemetry.report) return evaluated;
  nlohmann::ordered_json told = record.json(config_.launch.axis_name);
  if (const std::int64_t bytes = bytes_of_texts(state, data); bytes > 0) {
    told.update(text_samples(model, data, bytes));
  }
  if (told.is_null()) return evaluated;
  evaluated.record = {{"set", set}, {"step", state.steps}, {"samples", data.size()}};
  evaluated.record.update(told);
  return evaluated;
}

// For texts the model reads a tenth of the positions that the evaluation has on a replica: not by
// the clock, since how long they are may depend on no machine. At stage 3 each byte gathers all
// parameters: a few bytes, and only at the run's end.
std::int64_t Evaluator::bytes_of_texts(const RunState& state, const Dataset& data) const {
  if (config_.zero.stage == 3) return state.is_last() ? sampled_bytes(data.type(), 0) : 0;
  const std::int64_t samples = shard(data.size(), config_.launch.replicas, 0).size;
  return sampled_bytes(data.type(), samples * data.type().input.values() / 10);
}

}  // namespace lockstep
