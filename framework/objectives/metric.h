#pragma once

#include <functional>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "framework/base/non_copyable.h"
#include "framework/keys/choice.h"
#include "framework/objectives/loss.h"

namespace lockstep {

/// A figure by which a model is judged: a function of sums that add up over batches and replicas,
/// so that it says the same however the samples are shared out.
///
///   at::Tensor sums = metric.add(outputs, targets);            // this replica's samples,
///   sums += metric.add(more_outputs, more_targets);            // batch by batch
///   const double value = metric.value(psum(sums, "data"));     // of all replicas
///
/// Metrics have no state: several threads may use one.
class Metric : private NonCopyable {
 public:
  virtual ~Metric() = default;

  /// The sums of this batch: float64, of one dimension, whose length is the same for all batches of
  /// a data set. A batch without samples has sums of zero; a replica without samples gets them by
  /// outputs.narrow(0, 0, 0), targets likewise. Not differentiable. Throws ValueError for shapes,
  /// dtypes and targets that the metric has no value for.
  [[nodiscard]] virtual at::Tensor add(const at::Tensor& outputs,
                                       const at::Tensor& targets) const = 0;

  /// The figure. NaN where nothing was counted, since it is then undefined.
  [[nodiscard]] virtual double value(const at::Tensor& sums) const = 0;

  [[nodiscard]] virtual bool higher_is_better() const = 0;
};

/// A metric that a config can name.
///
///   register_metric({keys::choice("f1", "the F1 score"), [](auto loss) { return make_f1(); }});
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
///   loss                 the loss itself, in training's weights; of float32 outputs each batch's
///                        mean is rounded to float32, as training has it
///   perplexity           exp of the mean cross entropy, without smoothing and class weights
///   bits_per_byte        the mean cross entropy in bits, for models of which a target is a byte
///   r2                   R², the coefficient of determination, mean over the outputs
///   mean_absolute_error  mean over all elements
///
/// The first two and perplexity and bits_per_byte are for outputs and targets as of
/// make_cross_entropy, without the target that the loss ignores (Loss::ignore_index). Among equal
/// outputs the class of the lower index is the larger. An output of NaN is larger than numbers, but
/// no target is right by one.
///
/// The last two are for outputs and targets as of make_mean_squared_error. r2 is
/// sklearn.metrics.r2_score for (samples, outputs…), save that it is NaN where an output's targets
/// are constant. Its sums tell that only if their standard deviation is above a millionth of their
/// root mean square; where it is not, r2 is NaN, too. It is NaN of fewer than two samples.
///
/// Throws ValueError for an unknown name, a K that is no number from 1 on, and without a loss.
[[nodiscard]] std::shared_ptr<const Metric> make_metric(const std::string& name,
                                                        std::shared_ptr<const Loss> loss);

}  // namespace lockstep
