#pragma once

#include <functional>
#include <memory>
#include <source_location>
#include <string>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/base/non_copyable.h"
#include "framework/keys/choice.h"
#include "framework/objectives/loss.h"

namespace lockstep {

/// What is counted of a model's outputs, so that it adds up over batches and replicas: it is the
/// same however the samples are shared out. Tallies have no state: several threads may use one.
class Tally : private NonCopyable {
 public:
  virtual ~Tally() = default;

  /// What this batch counts, in float64. Sums have one dimension, whose length is the same for all
  /// batches of a data set, and are zero for a batch without samples; a replica without samples
  /// gets them by outputs.narrow(0, 0, 0), targets likewise. Not differentiable. Throws ValueError
  /// for shapes, dtypes and targets that can't be counted.
  [[nodiscard]] virtual at::Tensor add(const at::Tensor& outputs,
                                       const at::Tensor& targets) const = 0;

  /// Whether add() returns no sums, but rows, (rows, columns), any number of them, in the samples'
  /// order: for what needs all samples at once, such as their ranks. Batches' rows stand one after
  /// the other (at::cat). Each replica then holds those of all samples at the end.
  [[nodiscard]] virtual bool is_of_rows() const { return false; }
};

/// What a tally counts of all replicas' samples, the same on each: of sums psum(own), of rows those
/// of replica 0, then of replica 1, …. All replicas call it. Throws as psum.
[[nodiscard]] at::Tensor of_all_replicas(
    const Tally& tally, const at::Tensor& own, const AxisNames& axis_name,
    std::source_location where = std::source_location::current());

/// A figure by which a model is judged: a function of a tally.
///
///   at::Tensor sums = metric.add(outputs, targets);            // this replica's samples,
///   sums += metric.add(more_outputs, more_targets);            // batch by batch
///   const double value = metric.value(of_all_replicas(metric, sums, "data"));
///
/// Those of a program's own derive from it: add(), value() and higher_is_better() are enough where
/// sums do.
class Metric : public Tally {
 public:
  /// The figure of sums or rows. NaN where nothing was counted, since it is then undefined.
  [[nodiscard]] virtual double value(const at::Tensor& counted) const = 0;

  [[nodiscard]] virtual bool higher_is_better() const = 0;
};

/// A metric that a config can name.
///
///   register_metric({keys::choice("kappa", "Cohen's kappa"), [](auto loss) { return make_kappa();
///   }});
struct MetricKind : keys::Choice {
  /// For a model that is trained by `loss`.
  std::function<std::shared_ptr<const Metric>(std::shared_ptr<const Loss> loss)> make;
};

/// Lets configs name a metric. Before they are read, for one thread: first thing in main().
/// ValueError for a name that is there already, for "none", and for one that begins with "top_".
void register_metric(MetricKind kind);

/// All metrics that are known, "top_K" for all of top_1, top_2, ….
[[nodiscard]] const keys::Registry<MetricKind>& metric_registry();

/// The metric of this name, for a model that is trained by `loss`:
///
///   accuracy             the part of the targets whose class has the largest output
///   top_K                … one of the K largest outputs: top_5; K may not exceed the classes
///   f1                   of two classes that of class 1, of more the mean over the classes
///   f1_macro             … the mean over the classes, of two as of more
///   f1_weighted          … the mean over the classes, each weighted by its targets
///   precision, precision_macro, precision_weighted, recall, recall_macro, recall_weighted
///                        as f1
///   balanced_accuracy    the mean recall over the classes that occur as targets
///   auc                  the area under the ROC curve, for two classes
///   loss                 the loss itself, in training's weights; of float32 outputs each batch's
///                        mean is rounded to float32, as training has it
///   perplexity           exp of the mean cross entropy, without smoothing and class weights
///   bits_per_byte        the mean cross entropy in bits, for models of which a target is a byte
///   r2                   R², the coefficient of determination, mean over the outputs
///   mean_absolute_error, mean_squared_error
///                        mean over all elements
///   root_mean_squared_error
///                        the root of the mean over all elements
///
/// The figures of classes, perplexity and bits_per_byte are for outputs and targets as of
/// make_cross_entropy, without the target that the loss ignores (Loss::ignore_index). Among equal
/// outputs the class of the lower index is the larger. An output of NaN is larger than numbers, but
/// no target is right by one.
///
/// f1, precision and recall are scikit-learn's f1_score and so on: f1 with its default average
/// ("binary") for two classes and "macro" for more, f1_macro with "macro", f1_weighted with
/// "weighted". ("micro" is accuracy.) As there, a ratio of nothing to nothing is 0 (zero_division),
/// and a class that is neither a target nor predicted is no part of a mean. Outputs of which one is
/// NaN predict no class.
///
/// auc is sklearn.metrics.roc_auc_score: the probability that a target of class 1 has a larger
/// output 1 - output 0 than one of class 0; equal ones count half. It is of rows, 16 bytes a target
/// on each replica. NaN where a class has no targets, and where such a difference is NaN.
///
/// The last four are for outputs and targets as of make_mean_squared_error. r2 is
/// sklearn.metrics.r2_score for (samples, outputs…), save that it is NaN where an output's targets
/// are constant. Its sums tell that only if their standard deviation is above a millionth of their
/// root mean square; where it is not, r2 is NaN, too. It is NaN of fewer than two samples.
///
/// Throws ValueError for an unknown name, a K that is no number from 1 on, and without a loss.
[[nodiscard]] std::shared_ptr<const Metric> make_metric(const std::string& name,
                                                        std::shared_ptr<const Loss> loss);

}  // namespace lockstep
