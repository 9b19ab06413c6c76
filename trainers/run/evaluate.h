#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/axes/axis_names.h"
#include "framework/checkpoint/weights.h"
#include "framework/data/dataset.h"
#include "framework/data/fitted.h"
#include "framework/objectives/loss.h"
#include "framework/objectives/metric.h"
#include "models/model.h"
#include "trainers/config/config.h"
#include "trainers/run/sample_place.h"

namespace lockstep {

using NamedMetric = std::pair<std::string, std::shared_ptr<const Metric>>;

/// What a run makes small, and the figures of its evaluations.
struct Objective {
  std::shared_ptr<const Loss> loss;
  std::vector<NamedMetric> metrics;  ///< the first is "loss"
  /// How the values to predict were normalized, if figures are of what they were before.
  std::vector<ColumnScale> scales = {};

  /// ValueError, with the nearest name, if there is none.
  [[nodiscard]] const Metric& metric(const std::string& name) const;
};

/// As the config says, for data that were read by `fitted`. ValueError for unknown metrics, and for
/// a loss or metrics that do not fit the samples: each metric is tried on one of zeros.
[[nodiscard]] Objective make_objective(const Config& config, const SampleType& sample,
                                       const Fitted& fitted = {});

/// The loss of a batch, in the config's precision.
struct BatchLoss {
  at::Tensor trained;       ///< what is made small
  at::Tensor told;          ///< the figure, without a gradient
  std::int64_t scores = 0;  ///< that the model gives for each target; 0 where it gives values
};
/// What the model or the loss throws gains its place; `samples` tells which samples these are.
[[nodiscard]] BatchLoss training_loss(const Config& config, const Objective& objective,
                                      Model& model, const Batch& batch,
                                      const std::function<BatchSamples()>& samples);
/// "loss 'cross_entropy'": what messages call it.
[[nodiscard]] std::string loss_text(const Config& config);

/// The config's model with the weights of a checkpoint that evaluations take. Errors as
/// make_whole_model() and load_safetensors().
[[nodiscard]] std::shared_ptr<Model> model_of_checkpoint(const Config& config,
                                                         const SampleType& sample,
                                                         const std::filesystem::path& checkpoint);

using NamedTally = std::pair<std::string, std::shared_ptr<const Tally>>;

/// Takes what a batch of this replica's has come to: which samples, outputs, targets.
using TakeBatch = std::function<void(std::span<const std::int64_t> indices,
                                     const at::Tensor& outputs, const at::Tensor& targets)>;

/// What each of the tallies counts of all of `data`. The model runs in evaluation mode. Each
/// replica of the axis takes an equal share of the samples, in batches of `batch_size`. The result
/// is the same on each; of rows it is in the samples' order. With `scales` outputs and targets are
/// counted as they were before they were normalized, in float64. `take` gets the same. `ends` is
/// asked between batches, equally often on each replica: true, on all, gives the work up, and the
/// result is empty.
[[nodiscard]] std::vector<at::Tensor> tallied(Model& model, const Dataset& data,
                                              const std::vector<NamedTally>& tallies,
                                              std::int64_t batch_size, const AxisNames& axis_name,
                                              const std::vector<ColumnScale>& scales = {},
                                              const TakeBatch& take = {},
                                              const std::function<bool()>& ends = {});

using Figures = std::map<std::string, double>;

/// The objective's metrics of what they have counted, by name.
[[nodiscard]] Figures figures_of(const Objective& objective,
                                 const std::vector<at::Tensor>& counted);

/// The objective's metrics over all of `data`, by name: figures_of() tallied(). None where `ends`
/// gives that up.
[[nodiscard]] Figures evaluate(Model& model, const Dataset& data, const Objective& objective,
                               std::int64_t batch_size, const AxisNames& axis_name,
                               const std::function<bool()>& ends = {});

/// "step 30: test accuracy 0.89, test loss 0.33": the figures of the set "test" after so many
/// steps. Of averages of the parameters, with those of the parameters themselves if they are given:
/// "step 30, averaged weights: test loss 0.33 (0.21 without averages)".
[[nodiscard]] std::string evaluation_text(std::int64_t steps, const std::string& set,
                                          const Figures& figures, const Figures& trained = {},
                                          ParameterValues weights = ParameterValues::trained);

/// As files say it: "trained" or "averaged".
[[nodiscard]] inline std::string name_of(ParameterValues weights) {
  return weights == ParameterValues::averaged ? "averaged" : "trained";
}

/// Whether figures of one set, of averages of the parameters and of the parameters themselves,
/// differ by more than a tenth.
[[nodiscard]] bool differ_much(const Figures& averaged, const Figures& trained);

}  // namespace lockstep
