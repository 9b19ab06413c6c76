#include "trainers/run/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/data/finite.h"
#include "framework/formats/csv.h"
#include "framework/objectives/objectives.h"
#include "framework/training/autocast.h"
#include "framework/training/evaluation_mode.h"
#include "framework/training/forward_place.h"
#include "trainers/config/config_options.h"

namespace lockstep {

const Metric& Objective::metric(const std::string& name) const {
  const auto found = std::ranges::find(metrics, name, &NamedMetric::first);
  if (found != metrics.end()) return *found->second;
  const auto names = mapped(metrics, &NamedMetric::first);
  throw ValueError(str("'", name, "' is none of the evaluation's figures",
                       did_you_mean(name, names), ": these are ", join(names)));
}

namespace {

// Throws ValueError unless what the tally has counted of a batch adds up with that of another.
void check_counted(const std::string& name, const Tally& tally, const at::Tensor& of_batch,
                   const at::Tensor& of_other) {
  const std::size_t batch_dims = tally.is_of_rows() ? 1 : 0;
  require(of_batch.dim() == static_cast<std::int64_t>(batch_dims) + 1 &&
              of_batch.dim() == of_other.dim() &&
              of_batch.sizes().slice(batch_dims) == of_other.sizes().slice(batch_dims),
          "metric '", name, "': add() returns ", form_of(of_batch), " of one batch and ",
          form_of(of_other), " of another; ",
          tally.is_of_rows()
              ? "all must have one number of columns"
              : "sums have one dimension, of the same length whatever the batch is (what has a row "
                "for each sample overrides is_of_rows())");
}

// What a metric counts of a sample, and of two, of such outputs and targets as these.
std::vector<at::Tensor> tried(const std::string& name, const Metric& metric,
                              const SampleType& sample) {
  const auto counted_of = [&](std::int64_t samples) {
    std::vector<std::int64_t> shape = sample.target.sizes(1);
    // One position is as good as a million.
    if (sample.classes > 0) std::ranges::fill(shape, 1);
    shape[0] = samples;
    const at::Tensor target = at::zeros(shape, sample.target.dtype);
    // Nor does a metric tell a million classes from a billion, whose scores would fill the memory.
    constexpr std::int64_t kMostClasses = 1'000'000;
    if (sample.classes > 0) shape.push_back(std::min(sample.classes, kMostClasses));
    return torch_placed(
        [&] { return str("metric ", name, " of an output of zeros, ", form_of(at::zeros(shape))); },
        [&] { return metric.add(at::zeros(shape), target); });
  };
  return {counted_of(1), counted_of(2)};
}

bool fits(const std::string& name, const std::shared_ptr<const Loss>& loss,
          const SampleType& sample) {
  try {
    (void)tried(name, *make_metric(name, loss), sample);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Throws ValueError, naming it, if the metric has no value for such samples.
void check_metric(const std::string& name, const Metric& metric,
                  const std::shared_ptr<const Loss>& loss, const SampleType& sample,
                  const std::vector<std::string>& targets) {
  std::vector<at::Tensor> counted;
  try {
    counted = tried(name, metric, sample);
  } catch (const ValueError& error) {
    // Of the same inputs with targets of the other kind.
    const bool has_classes = sample.classes > 0;
    const SampleType other =
        has_classes ? value_sample(sample.input.shape, 1) : class_sample(sample.input.shape, 2);
    if (!fits(name, loss, other)) {
      throw ValueError(str("metric ", name, " does not fit the data: ", error.what()));
    }
    const auto names = filtered(metric_registry().names(),
                                [&](const auto& each) { return fits(each, loss, sample); });
    const std::string kind = has_classes ? "classes" : "numbers";
    throw ValueError(str("metric ", name, " is for ", has_classes ? "numbers" : "classes",
                         ", and the data's targets ",
                         targets.empty() ? "" : str("(", formats::quoted(targets), ") "), "are ",
                         kind,
                         targets.empty() ? ""
                         : has_classes   ? "; data.task: regression takes them as numbers"
                                         : "; data.task: classification makes classes of them",
                         "; metrics of ", kind, " are ", join(names)));
  }
  check_counted(name, metric, counted[0], counted[1]);
}

// Throws DataError if one of these samples is not finite: figures are not to be, without a word.
void check_samples(const Dataset& data, const Range& part) {
  const std::string found = first_non_finite(data, consecutive(part.offset, part.size));
  if (!found.empty()) throw DataError(str("what is evaluated is not finite: ", found));
}

}  // namespace

Objective make_objective(const Config& config, const SampleType& sample, const Fitted& fitted) {
  Objective objective{
      .loss = make_loss(config.loss, sample), .metrics = {}, .scales = fitted.target_scales};
  std::vector<std::string> names = config.trainer.metrics;
  if (names.empty() && sample.classes > 0) names = {"accuracy"};
  names.insert(names.begin(), "loss");
  for (const std::string& name : names) {
    if (std::ranges::count(objective.metrics, name, &NamedMetric::first) > 0) continue;
    objective.metrics.emplace_back(name, make_metric(name, objective.loss));
    check_metric(name, *objective.metrics.back().second, objective.loss, sample, fitted.targets);
  }
  return objective;
}

BatchLoss training_loss(const Config& config, const Objective& objective, Model& model,
                        const Batch& batch, const std::function<BatchSamples()>& samples) {
  std::optional<AutocastScope> autocast;
  if (config.trainer.precision == Precision::bf16) autocast.emplace(at::kBFloat16);
  const at::Tensor outputs = run_forward(model, batch.inputs);
  const at::Tensor loss =
      measured([&] { return loss_text(config); }, samples, outputs, batch.targets,
               [&](const at::Tensor& some_outputs, const at::Tensor& some_targets) {
                 return objective.loss->mean(some_outputs, some_targets);
               });
  const bool has_scores = outputs.dim() == batch.targets.dim() + 1;
  const std::int64_t scores = has_scores ? outputs.size(-1) : 0;
  // As evaluations do: values of other sizes have no unit that is known.
  if (objective.scales.empty() || outputs.sizes() != batch.targets.sizes()) {
    return {loss, loss.detach(), scores};
  }
  return {loss,
          objective.loss->mean(unscaled(outputs, objective.scales),
                               unscaled(batch.targets, objective.scales)),
          scores};
}

std::string loss_text(const Config& config) {
  return config.loss.name == "auto" ? "the loss" : str("loss '", config.loss.name, "'");
}

std::shared_ptr<Model> model_of_checkpoint(const Config& config, const SampleType& sample,
                                           const std::filesystem::path& checkpoint) {
  auto made = make_whole_model(config, sample);
  load_safetensors(checkpoint, *made, evaluated_values(config));
  return made;
}

std::vector<at::Tensor> tallied(Model& model, const Dataset& data,
                                const std::vector<NamedTally>& tallies, std::int64_t batch_size,
                                const AxisNames& axis_name, const std::vector<ColumnScale>& scales,
                                const TakeBatch& take, const std::function<bool()>& ends) {
  const training::EvaluationMode evaluation(model);
  const AutocastScope no_casts(at::kFloat);  // a callback may have left others on
  const Range own = shard(data.size(), axis_size(axis_name), axis_index(axis_name));
  std::vector<std::vector<at::Tensor>> parts(tallies.size());  // a sum is one part
  // All replicas run the model equally often: collectives or blocks inside need that. A replica
  // that has no samples left runs it on one that does not count.
  const std::int64_t most = shard(data.size(), axis_size(axis_name), 0).size;
  for (std::int64_t start = 0; start < most; start += batch_size) {
    if (start > 0 && ends && ends()) return {};
    const std::int64_t count = std::clamp<std::int64_t>(own.size - start, 0, batch_size);
    const BatchSamples samples{.data = data,
                               .indices = consecutive(count > 0 ? own.offset + start : 0,
                                                      std::max<std::int64_t>(count, 1))};
    const Batch batch = made_batch(samples);
    at::Tensor outputs = run_forward(model, batch.inputs).narrow(0, 0, count);
    at::Tensor targets = batch.targets.narrow(0, 0, count);
    // What differs in its sizes only a program's own tallies take.
    if (!scales.empty() && outputs.sizes() == targets.sizes()) {
      outputs = unscaled(outputs, scales);
      targets = unscaled(targets, scales);
    }
    if (take && count > 0) take(samples.indices, outputs, targets);
    for (std::size_t i = 0; i < tallies.size(); ++i) {
      const Tally& tally = *tallies[i].second;
      const at::Tensor of_batch =
          measured([&] { return str("metric '", tallies[i].first, "'"); }, [&] { return samples; },
                   outputs, targets,
                   [&](const at::Tensor& some_outputs, const at::Tensor& some_targets) {
                     return tally.add(some_outputs, some_targets);
                   });
      if (!parts[i].empty()) check_counted(tallies[i].first, tally, of_batch, parts[i][0]);
      if (parts[i].empty() || tally.is_of_rows()) {
        parts[i].push_back(of_batch);
      } else {
        parts[i][0] = parts[i][0] + of_batch;
      }
    }
  }

  const auto own_counted = mapped(parts, [](const auto& of_tally) { return at::cat(of_tally); });
  for (const at::Tensor& counted : own_counted) {
    if (!counted.isfinite().all().item<bool>()) check_samples(data, own);
  }
  std::vector<at::Tensor> all;
  for (std::size_t i = 0; i < tallies.size(); ++i) {
    all.push_back(of_all_replicas(*tallies[i].second, own_counted[i], axis_name));
  }
  return all;
}

Figures figures_of(const Objective& objective, const std::vector<at::Tensor>& counted) {
  Figures figures;
  for (std::size_t i = 0; i < objective.metrics.size(); ++i) {
    const auto& [name, metric] = objective.metrics[i];
    figures[name] = placed([&] { return str("metric '", name, "'"); },
                           [&] { return metric->value(counted[i]); });
  }
  return figures;
}

Figures evaluate(Model& model, const Dataset& data, const Objective& objective,
                 std::int64_t batch_size, const AxisNames& axis_name,
                 const std::function<bool()>& ends) {
  const std::vector<NamedTally> tallies(objective.metrics.begin(), objective.metrics.end());
  const auto counted =
      tallied(model, data, tallies, batch_size, axis_name, objective.scales, {}, ends);
  return counted.empty() ? Figures() : figures_of(objective, counted);
}

std::string evaluation_text(std::int64_t steps, const std::string& set, const Figures& figures,
                            const Figures& trained, ParameterValues weights) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : figures) {
    const auto other = trained.find(name);
    texts.push_back(
        str(set, " ", name, " ", value,
            other == trained.end() ? "" : str(" (", other->second, " without averages)")));
  }
  const bool are_averages = weights == ParameterValues::averaged;
  return str("step ", steps, are_averages ? ", averaged weights: " : ": ", join(texts));
}

bool differ_much(const Figures& averaged, const Figures& trained) {
  constexpr double kMuch = 0.1;
  return std::ranges::any_of(averaged, [&](const auto& figure) {
    const double a = figure.second;
    const double b = trained.at(figure.first);
    if (!std::isfinite(a) || !std::isfinite(b)) return std::isfinite(a) != std::isfinite(b);
    return std::fabs(a - b) > kMuch * std::max(std::fabs(a), std::fabs(b));
  });
}

}  // namespace lockstep
