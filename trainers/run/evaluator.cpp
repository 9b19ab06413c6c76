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

std::pair<Figures, Figures> Evaluator::figures(const RunState& state, const std::string& set,
                                               const Dataset& data) {
  if (evaluated_values(config_) == ParameterValues::trained) {
    return {shown_figures(state, set, data), {}};
  }
  // Each time: in a warm-up the two come to differ only later.
  StopAgreement stop(config_.launch.axis_name);
  Figures trained = evaluate(model_, data, objective_, config_.data_use.batch_size,
                             config_.launch.axis_name, [&] { return stop.is_asked(); });
  if (trained.empty()) return {};
  const auto averages = trainer_.averaged_parameters();
  Figures averaged = shown_figures(state, set, data);
  if (averaged.empty()) return {};
  if (!differ_much(averaged, trained)) trained.clear();
  return {std::move(averaged), std::move(trained)};
}

// The figures of the parameters as they are.
Figures Evaluator::shown_figures(const RunState& state, const std::string& set,
                                 const Dataset& data) {
  std::vector<NamedTally> tallies(objective_.metrics.begin(), objective_.metrics.end());
  const bool shows = config_.telemetry.tensorboard && are_pictures(data.type());
  if (shows) tallies.emplace_back("predicted classes", make_predicted_classes());
  EvaluationRecord record(data, *objective_.loss);
  TakeBatch take;
  if (config_.telemetry.report) {
    take = [&](const auto&... batch) { record.add(batch...); };
  }
  StopAgreement stop(config_.launch.axis_name);
  const std::vector<at::Tensor> counted =
      tallied(model_, data, tallies, config_.data_use.batch_size, config_.launch.axis_name,
              objective_.scales, take, [&] { return stop.is_asked(); });
  if (counted.empty()) return {};
  if (shows && reporter_.summary() != nullptr) {
    reporter_.add_pictures(state, wrong_pictures(set, data, counted.back(), *objective_.loss));
  }
  if (config_.telemetry.report) tell_report(state, set, data, record);
  return figures_of(objective_, counted);
}

void Evaluator::tell_report(const RunState& state, const std::string& set, const Dataset& data,
                            const EvaluationRecord& record) {
  const AxisNames& axis = config_.launch.axis_name;
  nlohmann::ordered_json told = record.json(axis);
  if (const std::int64_t bytes = bytes_of_texts(state, data); bytes > 0) {
    told.update(text_samples(model_, data, bytes));
  }
  if (!report_ || told.is_null()) return;
  nlohmann::ordered_json all{{"set", set}, {"step", state.steps}, {"samples", data.size()}};
  all.update(told);
  report_->note_evaluation(set, all);
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
