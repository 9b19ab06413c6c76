#include "framework/objectives/metric.h"

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include "framework/base/number_text.h"
#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/psum.h"
#include "framework/objectives/built_in_metrics.h"
#include "framework/objectives/class_counts.h"
#include "framework/objectives/cross_entropy.h"
#include "framework/objectives/mean_metric.h"
#include "framework/objectives/mean_squared_error.h"

namespace lockstep {
namespace {

constexpr std::string_view kTop = "top_";

// The K of "top_K".
std::int64_t top_count(std::string_view name) {
  const std::string_view digits = name.substr(kTop.size());
  const auto k = parse_number<std::int64_t>(digits);
  require(k.value_or(0) >= 1 && digits.front() != '0', "metric '", name,
          "': K must be a number from 1 on, as in top_5");
  return *k;
}

// A function of a loss' mean over all batches, the smaller the better.
std::shared_ptr<const Metric> make_loss_metric(std::shared_ptr<const Loss> loss,
                                               double (*of_mean)(double)) {
  const auto of_batch = [loss = std::move(loss)](
                            const at::Tensor& outputs,
                            const at::Tensor& targets) -> objectives::WeightedSum {
    if (targets.numel() == 0) return {};
    const double mean = loss->mean(outputs, targets).item<double>();
    const double weight = loss->weight(targets);
    return {mean * weight, weight};
  };
  return objectives::make_mean_metric({.of_batch = of_batch, .of_mean = of_mean});
}

// Of the plain cross entropy, of the targets that count in the loss.
MetricKind of_cross_entropy(std::string name, std::string help, double (*of_mean)(double)) {
  return {keys::choice(std::move(name), std::move(help)),
          [of_mean](const std::shared_ptr<const Loss>& loss) {
            return make_loss_metric(make_cross_entropy({.ignore_index = loss->ignore_index()}),
                                    of_mean);
          }};
}

MetricKind of_squared_error(std::string name, std::string help, double (*of_mean)(double)) {
  return {keys::choice(std::move(name), std::move(help)),
          [of_mean](const std::shared_ptr<const Loss>& /*loss*/) {
            return make_loss_metric(make_mean_squared_error(), of_mean);
          }};
}

MetricKind of_class_counts(const std::string& name, std::string help, objectives::ClassScore score,
                           objectives::ClassWeight weight, bool is_of_class_1 = false) {
  return {keys::choice(name, std::move(help)), [=](const std::shared_ptr<const Loss>& loss) {
            return objectives::make_class_score(name, loss->ignore_index(), score, weight,
                                                is_of_class_1);
          }};
}

// "f1", "f1_macro" and "f1_weighted".
void add_averages(std::vector<MetricKind>& kinds, const std::string& name, const std::string& help,
                  objectives::ClassScore score) {
  kinds.push_back(of_class_counts(name, help + "; class 1's of two, else the mean", score,
                                  objectives::macro_weight, /*is_of_class_1=*/true));
  kinds.push_back(of_class_counts(name + "_macro", help + "; the mean over classes", score,
                                  objectives::macro_weight));
  kinds.push_back(of_class_counts(name + "_weighted", help + "; the mean weighted by targets",
                                  score, objectives::weighted_weight));
}

std::vector<MetricKind> built_in_metrics() {
  using namespace objectives;
  // A new metric is a file of its own and a line here.
  std::vector<MetricKind> kinds{
      {keys::choice("accuracy", "the part of the targets whose class has the largest output"),
       [](const std::shared_ptr<const Loss>& loss) {
         return make_top_accuracy("accuracy", 1, loss->ignore_index());
       }},
      {keys::choice("top_K",
                    "the part whose class has one of the K largest outputs, for any K: top_5"),
       [](const std::shared_ptr<const Loss>& loss) {
         return make_top_accuracy("top_K", top_count("top_K"), loss->ignore_index());
       }}};
  add_averages(kinds, "f1", "harmonic mean of precision and recall", &ClassCount::f1);
  add_averages(kinds, "precision", "how many predictions of a class are right",
               &ClassCount::precision);
  add_averages(kinds, "recall", "how many targets of a class are found", &ClassCount::recall);
  std::vector<MetricKind> others{
      of_class_counts("balanced_accuracy", "the mean recall over the classes that occur",
                      &ClassCount::recall, recalled_weight),
      {keys::choice("auc", "the area under the ROC curve, for two classes"),
       [](const std::shared_ptr<const Loss>& loss) { return make_auc(loss->ignore_index()); }},
      {keys::choice("loss", "what training makes small"),
       [](std::shared_ptr<const Loss> loss) {
         return make_loss_metric(std::move(loss), [](double mean) { return mean; });
       }},
      of_cross_entropy("perplexity", "exp of the mean cross entropy",
                       [](double mean) { return std::exp(mean); }),
      of_cross_entropy("bits_per_byte", "the mean cross entropy in bits, of bytes",
                       [](double mean) { return mean / std::numbers::ln2; }),
      {keys::choice("r2", "the coefficient of determination, mean over the outputs"),
       [](const std::shared_ptr<const Loss>& /*loss*/) { return make_r2(); }},
      {keys::choice("mean_absolute_error", "mean over all elements"),
       [](const std::shared_ptr<const Loss>& /*loss*/) { return make_mean_absolute_error(); }},
      of_squared_error("mean_squared_error", "mean over all elements",
                       [](double mean) { return mean; }),
      of_squared_error("root_mean_squared_error", "the root of the mean over all elements",
                       [](double mean) { return std::sqrt(mean); })};
  for (MetricKind& kind : others) kinds.push_back(std::move(kind));
  return kinds;
}

keys::Registry<MetricKind>& known_metrics() {
  static keys::Registry<MetricKind> kinds("metric", built_in_metrics());
  return kinds;
}

}  // namespace

at::Tensor of_all_replicas(const Tally& tally, const at::Tensor& own, const AxisNames& axis_name,
                           std::source_location where) {
  if (!tally.is_of_rows()) return psum(own, axis_name, {}, where);
  // all_gather takes as many rows from each.
  const at::Tensor counts =
      all_gather(at::tensor({own.size(0)}, at::kLong), axis_name, {.tiled = true}, where);
  const auto most = counts.max().item<std::int64_t>();
  const at::Tensor padded = at::cat({own, own.new_zeros({most - own.size(0), own.size(1)})});
  const at::Tensor gathered = all_gather(padded, axis_name, {}, where);
  std::vector<at::Tensor> rows;
  for (std::int64_t i = 0; i < counts.numel(); ++i) {
    rows.push_back(gathered[i].narrow(0, 0, counts[i].item<std::int64_t>()));
  }
  return at::cat(rows);
}

const keys::Registry<MetricKind>& metric_registry() {
  return known_metrics();
}

void register_metric(MetricKind kind) {
  require(kind.name != "none" && !kind.name.starts_with(kTop), "a metric can't be called '",
          kind.name, "', which means something else in configs");
  known_metrics().add(std::move(kind));
}

std::shared_ptr<const Metric> make_metric(const std::string& name,
                                          std::shared_ptr<const Loss> loss) {
  require(loss != nullptr, "metric '", name, "': there is no loss");
  if (name.starts_with(kTop)) {
    return objectives::make_top_accuracy(name, top_count(name), loss->ignore_index());
  }
  return metric_registry().at(name).make(std::move(loss));
}

}  // namespace lockstep
