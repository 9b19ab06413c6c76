#include "framework/objectives/cross_entropy.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/tensor.h>

#include "framework/base/text.h"
#include "framework/objectives/batch.h"

namespace lockstep {
namespace {

using objectives::ClassBatch;

constexpr std::string_view kName = "cross_entropy";

void check(const CrossEntropyOptions& options) {
  keys::check(str(kName, ": label_smoothing"), options.label_smoothing, kLabelSmoothingRule);
  for (const double weight : options.class_weights) {
    keys::check(str(kName, ": class_weights"), weight, kClassWeightRule);
  }
  require(options.class_weights.empty() ||
              std::ranges::any_of(options.class_weights, [](double w) { return w > 0; }),
          kName, ": one of class_weights must be above 0; they are ", join(options.class_weights));
}

class CrossEntropy : public Loss {
 public:
  explicit CrossEntropy(CrossEntropyOptions options)
      : options_(std::move(options)),
        class_weights_(options_.class_weights.empty()
                           ? at::Tensor()
                           : at::tensor(options_.class_weights, at::kDouble)) {}

  at::Tensor mean(const at::Tensor& outputs, const at::Tensor& targets) const override {
    const ClassBatch batch = objectives::class_batch(kName, outputs, targets);
    if (targets.numel() == 0) {
      objectives::refuse(kName, "the batch has no samples", outputs, targets);
    }
    require(is_plain() || class_weights_.numel() == batch.classes(), kName, ": class_weights has ",
            counted(class_weights_.numel(), "number"), ", but outputs have ",
            counted(batch.classes(), "class", "classes"));
    const double weight = weight_of(batch.targets, batch.classes());
    if (weight == 0) return batch.scores.narrow(0, 0, 0).sum();  // LibTorch's mean is 0/0 here
    const at::Tensor class_weights =
        is_plain() ? at::Tensor() : class_weights_.to(batch.scores.scalar_type());
    return at::cross_entropy_loss(batch.scores, batch.targets, class_weights, at::Reduction::Mean,
                                  ignored(), options_.label_smoothing);
  }

  double weight(const at::Tensor& targets) const override {
    require(targets.scalar_type() == at::kLong && targets.is_cpu(), kName,
            ": targets must be int64 and on the CPU, not ", c10::toString(targets.scalar_type()),
            " on ", targets.device());
    if (!is_plain()) return weight_of(targets, class_weights_.numel());
    return targets.ne(ignored()).sum().item<double>();
  }

  bool is_weighted_by_samples() const override {
    return is_plain() && !options_.ignore_index.has_value();
  }

  std::optional<std::int64_t> ignore_index() const override { return options_.ignore_index; }

 private:
  bool is_plain() const { return options_.class_weights.empty(); }

  // What LibTorch is to ignore. Where nothing is, no checked target is this.
  std::int64_t ignored() const { return options_.ignore_index.value_or(-1); }

  double weight_of(const at::Tensor& targets, std::int64_t classes) const {
    double sum = 0;
    const auto add = [&](std::int64_t, std::int64_t target) {
      sum += is_plain() ? 1 : options_.class_weights[static_cast<std::size_t>(target)];
    };
    objectives::for_each_counted(kName, targets, classes, options_.ignore_index, add);
    return sum;
  }

  CrossEntropyOptions options_;
  at::Tensor class_weights_;  // (classes), float64; undefined without any
};

}  // namespace

std::shared_ptr<const Loss> make_cross_entropy(CrossEntropyOptions options) {
  check(options);
  return std::make_shared<CrossEntropy>(std::move(options));
}

}  // namespace lockstep
