#include "trainers/run/evaluator.h"

#include <vector>

#include "trainers/config/config_options.h"
#include "trainers/run/wrong_pictures.h"

namespace lockstep {

std::pair<Figures, Figures> Evaluator::figures(const RunState& state, const std::string& set,
                                               const Dataset& data) {
  if (evaluated_values(config_) == ParameterValues::trained) {
    return {shown_figures(state, set, data), {}};
  }
  // Each time: in a warm-up the two come to differ only later.
  Figures trained =
      evaluate(model_, data, objective_, config_.data_use.batch_size, config_.launch.axis_name);
  const auto averages = trainer_.averaged_parameters();
  Figures averaged = shown_figures(state, set, data);
  if (!differ_much(averaged, trained)) trained.clear();
  return {std::move(averaged), std::move(trained)};
}

// The figures of the parameters as they are.
Figures Evaluator::shown_figures(const RunState& state, const std::string& set,
                                 const Dataset& data) {
  std::vector<NamedTally> tallies(objective_.metrics.begin(), objective_.metrics.end());
  const bool shows = config_.telemetry.tensorboard && are_pictures(data.type());
  if (shows) tallies.emplace_back("predicted classes", make_predicted_classes());
  const std::vector<at::Tensor> counted =
      tallied(model_, data, tallies, config_.data_use.batch_size, config_.launch.axis_name,
              objective_.scales);
  if (shows && reporter_.summary() != nullptr) {
    reporter_.add_pictures(state, wrong_pictures(set, data, counted.back(), *objective_.loss));
  }
  return figures_of(objective_, counted);
}

}  // namespace lockstep
