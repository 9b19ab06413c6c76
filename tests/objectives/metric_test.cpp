#include "framework/objectives/metric.h"

#include <cmath>
#include <limits>
#include <numbers>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "framework/base/errors.h"
#include "framework/objectives/cross_entropy.h"
#include "framework/objectives/mean_squared_error.h"
#include "tests/catch.h"
#include "tests/objectives/numbers.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using lockstep::testing::message_of;
using lockstep::testing::random_classes;
using lockstep::testing::random_values;

namespace {

const double kNaN = std::numeric_limits<double>::quiet_NaN();

double value_of(const std::string& name, const at::Tensor& outputs, const at::Tensor& targets,
                const std::shared_ptr<const Loss>& loss = make_cross_entropy()) {
  const auto metric = make_metric(name, loss);
  const at::Tensor sums = metric->add(outputs.detach().requires_grad_(), targets);
  CHECK(sums.dim() == 1);
  CHECK(sums.scalar_type() == at::kDouble);
  CHECK_FALSE(sums.requires_grad());
  return metric->value(sums);
}

std::string refusal(const std::string& name, const at::Tensor& outputs, const at::Tensor& targets) {
  const auto metric = make_metric(name, make_cross_entropy());
  return message_of<ValueError>([&] { (void)metric->add(outputs, targets); });
}

}  // namespace

TEST_CASE("accuracy and top_K count the targets among the largest outputs", "[objectives]") {
  const at::Tensor outputs =
      at::tensor({0.1, 0.9, 0.5, 0.3, 0.8, 0.2, 0.7, 0.6, 0.4, 0.3, 0.2, 0.1}, at::kFloat)
          .view({3, 4});
  const at::Tensor targets = at::tensor({1, 3, 1}, at::kLong);  // ranks 0, 2, 1
  const at::Tensor kinds[] = {outputs, outputs.to(at::kDouble), outputs.to(at::kBFloat16),
                              outputs.to(at::kHalf), outputs.t().contiguous().t()};
  for (const at::Tensor& scores : kinds) {
    CHECK(value_of("accuracy", scores, targets) == 1.0 / 3);
    CHECK(value_of("top_1", scores, targets) == 1.0 / 3);
    CHECK(value_of("top_2", scores, targets) == 2.0 / 3);
    CHECK(value_of("top_3", scores, targets) == 1);
    CHECK(value_of("top_4", scores, targets) == 1);
  }
  CHECK(refusal("top_5", outputs, targets) == "top_5: outputs have only 4 classes");
}

TEST_CASE("accuracy is that of argmax, and leaves out what the loss ignores", "[objectives]") {
  const Key key(51);
  const at::Tensor outputs = random_values(key.fold("outputs"), {20, 7, 6});
  const at::Tensor targets = random_classes(key.fold("targets"), {20, 7}, 6, 4);
  const at::Tensor hits = outputs.argmax(-1).eq(targets);
  CHECK(value_of("accuracy", outputs, targets) ==
        Approx(hits.to(at::kDouble).mean().item<double>()));
  const at::Tensor counted = targets.ne(4);
  const double expected = hits.masked_select(counted).to(at::kDouble).mean().item<double>();
  CHECK(value_of("accuracy", outputs, targets, make_cross_entropy({.ignore_index = 4})) ==
        Approx(expected).epsilon(1e-14));
  // (140, 3) of the classes with the largest outputs.
  const at::Tensor among = std::get<1>(outputs.topk(3)).eq(targets.unsqueeze(-1)).any(-1);
  CHECK(value_of("top_3", outputs, targets) ==
        Approx(among.to(at::kDouble).mean().item<double>()).epsilon(1e-14));
}

TEST_CASE("among equal outputs the lower class is the larger; NaN is never right", "[objectives]") {
  const at::Tensor equal = at::ones({4, 4});
  const at::Tensor each = at::arange(4, at::kLong);
  CHECK(value_of("accuracy", equal, each) == 0.25);
  CHECK(value_of("top_2", equal, each) == 0.5);
  CHECK(value_of("top_3", equal, each) == 0.75);
  CHECK(value_of("accuracy", equal[0].unsqueeze(0), each.slice(0, 0, 1)) == 1);
  CHECK(value_of("top_2", equal[0].unsqueeze(0), each.slice(0, 2, 3)) == 0);

  CHECK(value_of("top_4", at::full({4, 4}, kNaN), each) == 0);
  const at::Tensor scores = at::tensor({kNaN, 3.0, 2.0}, at::kFloat).unsqueeze(0);
  const at::Tensor second = at::tensor({1}, at::kLong);
  CHECK(value_of("accuracy", scores, second) == 0);
  CHECK(value_of("top_2", scores, second) == 1);
}

TEST_CASE("loss is the loss of all targets, in training's weights", "[objectives]") {
  const at::Tensor outputs = random_values(Key(52), {6, 3});
  const at::Tensor targets = at::tensor({0, 1, 2, -100, 1, 0}, at::kLong);
  const auto loss = make_cross_entropy({.label_smoothing = 0.1, .class_weights = {1, 2, 3}});
  const auto metric = make_metric("loss", loss);
  const at::Tensor sums = metric->add(outputs, targets);
  CHECK(sums[1].item<double>() == 9);
  CHECK(metric->value(sums) == Approx(loss->mean(outputs, targets).item<double>()).epsilon(1e-14));
  const at::Tensor parts = metric->add(outputs.slice(0, 0, 4), targets.slice(0, 0, 4)) +
                           metric->add(outputs.slice(0, 4), targets.slice(0, 4));
  CHECK(metric->value(parts) == Approx(metric->value(sums)).epsilon(1e-14));
  CHECK(value_of("loss", outputs, outputs + 2, make_mean_squared_error()) ==
        Approx(4).epsilon(1e-14));
}

TEST_CASE("perplexity and bits_per_byte are of the plain cross entropy", "[objectives]") {
  // Uniform over C classes: as if one had to guess among C.
  const at::Tensor uniform = at::zeros({2, 5, 256}, at::kDouble);
  const at::Tensor bytes = random_classes(Key(53), {2, 5}, 256, -100);
  CHECK(value_of("perplexity", uniform, bytes) == Approx(256).epsilon(1e-12));
  CHECK(value_of("bits_per_byte", uniform, bytes) == Approx(8).epsilon(1e-14));

  const at::Tensor outputs = random_values(Key(54), {9, 4});
  const at::Tensor targets = random_classes(Key(55), {9}, 4, 3);
  const auto loss = make_cross_entropy(
      {.label_smoothing = 0.3, .class_weights = {1, 9, 2, 5}, .ignore_index = 3});
  const double mean =
      make_cross_entropy({.ignore_index = 3})->mean(outputs, targets).item<double>();
  CHECK(value_of("perplexity", outputs, targets, loss) == Approx(std::exp(mean)).epsilon(1e-12));
  CHECK(value_of("bits_per_byte", outputs, targets, loss) ==
        Approx(mean / std::numbers::ln2).epsilon(1e-12));
}

TEST_CASE("r2 is scikit-learn's", "[objectives]") {
  // The examples of sklearn.metrics.r2_score's documentation.
  const auto row = [](std::initializer_list<double> numbers) {
    return at::tensor(numbers, at::kDouble);
  };
  const auto r2 = [](const at::Tensor& truth, const at::Tensor& outputs) {
    return value_of("r2", outputs, truth);
  };
  CHECK(r2(row({3, -0.5, 2, 7}), row({2.5, 0.0, 2, 8})) ==
        Approx(0.9486081370449679).epsilon(1e-14));
  CHECK(r2(row({1, 2, 3}), row({1, 2, 3})) == 1);
  CHECK(r2(row({1, 2, 3}), row({2, 2, 2})) == 0);
  CHECK(r2(row({1, 2, 3}), row({3, 2, 1})) == -3);
  const at::Tensor truth = row({0.5, 1, -1, 1, 7, -6}).view({3, 2});
  const at::Tensor outputs = row({0, 2, -1, 2, 8, -5}).view({3, 2});
  // Of the outputs alone; their mean is the uniform average.
  const double first = 1 - 1.25 / (50.25 - 6.5 * 6.5 / 3);
  const double second = 1 - 3 / (38 - 4 * 4.0 / 3);
  CHECK(r2(truth, outputs) == Approx((first + second) / 2).epsilon(1e-14));
  CHECK(r2(truth.view({3, 1, 2}), outputs.view({3, 1, 2})) == r2(truth, outputs));
  CHECK(r2(truth.to(at::kFloat), outputs.to(at::kFloat)) == r2(truth, outputs));
  CHECK(r2(truth.to(at::kBFloat16), outputs.to(at::kFloat)) == r2(truth, outputs));
}

TEST_CASE("r2 holds its digits far from zero, and is NaN where targets are constant",
          "[objectives]") {
  const at::Tensor truth = random_values(Key(56), {1000});
  const at::Tensor outputs = truth + random_values(Key(57), {1000}) / 10;
  const double expected = value_of("r2", outputs, truth);
  CHECK(expected > 0.9);
  CHECK(value_of("r2", outputs + 1e4, truth + 1e4) == Approx(expected).epsilon(1e-6));

  for (int tenths = 1; tenths <= 20; ++tenths) {  // in some the sums' rounding looks like variance
    CHECK(std::isnan(value_of("r2", outputs, at::full_like(truth, tenths / 10.0))));
  }
  CHECK(std::isnan(value_of("r2", at::zeros({9}), at::zeros({9}))));
  CHECK(std::isnan(value_of("r2", outputs + 1e8, truth + 1e8)));
  CHECK(std::isnan(value_of("r2", at::ones({1}), at::ones({1}))));
  const at::Tensor one_constant = at::stack({truth, at::ones_like(truth)}, 1);
  CHECK(std::isnan(value_of("r2", one_constant, one_constant)));
  CHECK(std::isnan(value_of("r2", at::full_like(truth, kNaN), truth)));
}

TEST_CASE("mean_absolute_error is the mean over all elements", "[objectives]") {
  const at::Tensor truth = at::tensor({0.5, 1.0, -1.0, 1.0, 7.0, -6.0}, at::kFloat).view({3, 2});
  const at::Tensor outputs = at::tensor({0.0, 2.0, -1.0, 2.0, 8.0, -5.0}, at::kFloat).view({3, 2});
  CHECK(value_of("mean_absolute_error", outputs, truth) == 0.75);
  CHECK(value_of("mean_absolute_error", outputs.to(at::kHalf), truth) == 0.75);
  CHECK(value_of("mean_absolute_error", outputs.flatten(), truth.flatten()) == 0.75);
}

TEST_CASE("a batch without samples has sums of zero, whose value is NaN", "[objectives]") {
  const at::Tensor scores = random_values(Key(58), {4, 3, 6});
  const at::Tensor classes = random_classes(Key(59), {4, 3}, 6, -100);
  for (const std::string name : {"accuracy", "top_5", "f1", "precision_macro", "recall_weighted",
                                 "balanced_accuracy", "loss", "perplexity", "bits_per_byte"}) {
    INFO(name);
    const auto metric = make_metric(name, make_cross_entropy());
    const at::Tensor none = metric->add(scores.narrow(0, 0, 0), classes.narrow(0, 0, 0));
    CHECK(none.equal(at::zeros_like(metric->add(scores, classes))));
    CHECK(std::isnan(metric->value(none)));
    const at::Tensor ignored = metric->add(scores, at::full_like(classes, -100));
    CHECK(ignored.equal(none));
  }
  for (const std::string name :
       {"loss", "r2", "mean_absolute_error", "mean_squared_error", "root_mean_squared_error"}) {
    INFO(name);
    const auto metric = make_metric(name, make_mean_squared_error());
    const at::Tensor none = metric->add(scores.narrow(0, 0, 0), scores.narrow(0, 0, 0));
    CHECK(none.equal(at::zeros_like(metric->add(scores, scores))));
    CHECK(std::isnan(metric->value(none)));
  }
}

TEST_CASE("which way a metric is better", "[objectives]") {
  for (const std::string name : {"accuracy", "top_5", "f1", "auc", "balanced_accuracy", "r2"}) {
    CHECK(make_metric(name, make_mean_squared_error())->higher_is_better());
  }
  for (const std::string name :
       {"loss", "perplexity", "bits_per_byte", "mean_absolute_error", "root_mean_squared_error"}) {
    CHECK_FALSE(make_metric(name, make_mean_squared_error())->higher_is_better());
  }
  for (const std::string& name : metric_registry().names()) {
    CHECK(make_metric(name == "top_K" ? "top_10" : name, make_cross_entropy()) != nullptr);
  }
}

TEST_CASE("metrics refuse other outputs and targets", "[objectives]") {
  const at::Tensor labels = at::zeros({4}, at::kLong);
  for (const std::string name : {"accuracy", "top_2", "f1_macro", "balanced_accuracy"}) {
    CHECK_THAT(refusal(name, at::zeros({4, 2, 3}), labels),
               ContainsSubstring(name + ": outputs must be floating-point numbers of shape "
                                        "(samples, …, classes), targets int64"));
    CHECK(refusal(name, at::zeros({4, 3}), labels + 3) ==
          name + ": target 0 is 3; it must be a class, 0 to 2, or -100");
  }
  CHECK_THAT(refusal("perplexity", at::zeros({4, 3}), labels + 3),
             ContainsSubstring("target 0 is 3"));
  for (const std::string name : {"r2", "mean_absolute_error"}) {
    CHECK_THAT(refusal(name, at::zeros({4, 1}), at::zeros({4})),
               ContainsSubstring(name + ": outputs and targets must have one shape"));
    CHECK_THAT(refusal(name, at::zeros({4}), labels), ContainsSubstring("targets Long (4)"));
  }
}

TEST_CASE("unknown metrics name the nearest", "[objectives]") {
  const auto unknown = [](const std::string& name) {
    return message_of<ValueError>([&] { (void)make_metric(name, make_cross_entropy()); });
  };
  // Other tests of this program may have registered metrics of their own.
  CHECK_THAT(unknown("acuracy"),
             Catch::Matchers::StartsWith(
                 "there is no metric 'acuracy' (did you mean 'accuracy'?); there are "
                 "accuracy, top_K, f1, f1_macro, f1_weighted, precision, precision_macro, "
                 "precision_weighted, recall, recall_macro, recall_weighted, balanced_accuracy, "
                 "auc, loss, perplexity, bits_per_byte, r2, mean_absolute_error, "
                 "mean_squared_error, root_mean_squared_error"));
  CHECK_THAT(unknown(""), ContainsSubstring("there is no metric ''; there are"));
  for (const std::string name : {"top_", "top_0", "top_-1", "top_K", "top_5x", "top_05", "top_+5",
                                 "top_99999999999999999999"}) {
    CHECK(unknown(name) == "metric '" + name + "': K must be a number from 1 on, as in top_5");
  }
  CHECK(message_of<ValueError>([] { (void)make_metric("loss", nullptr); }) ==
        "metric 'loss': there is no loss");
}
