// Figures of classes and residuals are scikit-learn's and NumPy's: see reference.py.

#include <cmath>
#include <cstddef>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/objectives/class_counts.h"
#include "framework/objectives/cross_entropy.h"
#include "framework/objectives/mean_squared_error.h"
#include "framework/objectives/metric.h"
#include "framework/objectives/residuals.h"
#include "tests/catch.h"
#include "tests/objectives/numbers.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using lockstep::testing::message_of;
using lockstep::testing::random_classes;
using lockstep::testing::random_values;

namespace {

nlohmann::json reference(const char* part) {
  std::ifstream in(LOCKSTEP_SOURCE_DIR "/tests/objectives/reference.json");
  return nlohmann::json::parse(in).at(part);
}

at::Tensor matrix(const nlohmann::json& rows) {
  std::vector<at::Tensor> tensors;
  for (const auto& row : rows) {
    tensors.push_back(at::tensor(row.get<std::vector<double>>(), at::kDouble));
  }
  return at::stack(tensors);
}

// Of all samples at once.
double figure(const std::string& name, const at::Tensor& outputs, const at::Tensor& targets,
              const std::shared_ptr<const Loss>& loss = make_cross_entropy()) {
  const auto metric = make_metric(name, loss);
  return metric->value(metric->add(outputs.detach().requires_grad_(), targets));
}

// Two classes whose scores differ by `scores`.
at::Tensor two_classes(const at::Tensor& scores) {
  return at::stack({at::zeros_like(scores), scores}, 1);
}

}  // namespace

TEST_CASE("figures of classes are scikit-learn's", "[objectives]") {
  std::size_t with_auc = 0;
  for (const auto& record : reference("classes")) {
    INFO(record["name"]);
    const at::Tensor outputs = matrix(record["outputs"]);
    const at::Tensor targets =
        at::tensor(record["targets"].get<std::vector<std::int64_t>>(), at::kLong);
    for (const auto& [name, expected] : record["figures"].items()) {
      INFO(name);
      const double value = expected.get<double>();
      CHECK(figure(name, outputs, targets) == Approx(value).epsilon(1e-14).margin(1e-15));
      CHECK(figure(name, outputs.to(at::kFloat), targets) == figure(name, outputs, targets));
      CHECK(figure(name, outputs.to(at::kHalf), targets) == figure(name, outputs, targets));
      with_auc += name == "auc" ? 1 : 0;
    }
    const at::Tensor confusion =
        objectives::make_confusion(std::nullopt)->add(outputs, targets).view({outputs.size(1), -1});
    CHECK(confusion.narrow(1, 0, outputs.size(1)).equal(matrix(record["confusion"])));
    CHECK(confusion.select(1, outputs.size(1)).eq(0).all().item<bool>());
  }
  CHECK(with_auc == 2);
}

TEST_CASE("figures of values and their residuals' quantiles are scikit-learn's and NumPy's",
          "[objectives]") {
  for (const auto& record : reference("values")) {
    INFO(record["name"]);
    const at::Tensor outputs = matrix(record["outputs"]);
    const at::Tensor targets = matrix(record["targets"]);
    const auto value_of = [&](const std::string& name) {
      return figure(name, outputs, targets, make_mean_squared_error());
    };
    for (const auto& [name, expected] : record["figures"].items()) {
      INFO(name);
      CHECK(value_of(name) == Approx(expected.get<double>()).epsilon(1e-14));
    }
    CHECK(value_of("root_mean_squared_error") == std::sqrt(value_of("mean_squared_error")));

    const at::Tensor residuals = objectives::make_residuals()->add(outputs, targets);
    for (std::int64_t output = 0; output < outputs.size(1); ++output) {
      const auto found = objectives::quantiles(residuals.select(1, output), record["parts"]);
      const auto& expected = record["quantiles"][static_cast<std::size_t>(output)];
      for (std::size_t i = 0; i < found.size(); ++i) {
        CHECK(found[i] == Approx(expected[i].get<double>()).epsilon(1e-14).margin(1e-15));
      }
    }
  }
}

TEST_CASE("quantiles of one value, of none and of NaN", "[objectives]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(objectives::quantiles(at::tensor({2.5}, at::kDouble), {0, 0.3, 1}) ==
        std::vector{2.5, 2.5, 2.5});
  CHECK(objectives::quantiles(at::tensor({infinity, 1.0, -infinity}, at::kDouble), {0, 0.5, 1}) ==
        std::vector{-infinity, 1.0, infinity});
  CHECK(std::isnan(objectives::quantiles(at::empty({0}, at::kDouble), {0.5})[0]));
  CHECK(std::isnan(objectives::quantiles(at::tensor({1.0, nan}, at::kDouble), {0})[0]));
}

TEST_CASE("auc is the part of all pairs that are in order, equal ones counted half",
          "[objectives]") {
  const auto seed = GENERATE(range(70, 80));
  const Key key(static_cast<std::uint64_t>(seed));
  // Of few values, so that many are equal; a fourth of the targets does not count.
  const at::Tensor scores = (random_values(key.fold("scores"), {60}) * 2).round() / 2;
  const at::Tensor targets = random_classes(key.fold("targets"), {60}, 2, -100);
  double right = 0;
  double pairs = 0;
  for (std::int64_t i = 0; i < 60; ++i) {
    for (std::int64_t j = 0; j < 60; ++j) {
      if (targets[i].item<std::int64_t>() != 1 || targets[j].item<std::int64_t>() != 0) continue;
      const auto of_one = scores[i].item<double>();
      const auto of_zero = scores[j].item<double>();
      right += of_one > of_zero ? 1 : of_one == of_zero ? 0.5 : 0;
      pairs += 1;
    }
  }
  CHECK(figure("auc", two_classes(scores), targets) == right / pairs);
  CHECK(figure("auc", two_classes(scores).view({12, 5, 2}), targets.view({12, 5})) ==
        right / pairs);
  // What both scores have in common does not matter, nor which samples come first.
  CHECK(figure("auc", two_classes(scores) + 8, targets) == right / pairs);
  CHECK(figure("auc", two_classes(scores.flip(0)), targets.flip(0)) == right / pairs);
  CHECK(figure("auc", -two_classes(scores), targets) == Approx(1 - right / pairs).epsilon(1e-14));
}

TEST_CASE("auc is NaN of one class and of scores that are none, and for two classes alone",
          "[objectives]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor targets = at::tensor({0, 1, 1}, at::kLong);
  const auto auc = [&](double first, double second, double third) {
    return figure("auc", two_classes(at::tensor({first, second, third}, at::kDouble)), targets);
  };
  CHECK(auc(-infinity, 0, infinity) == 1);
  CHECK(auc(0.0, -0.0, 1) == 0.75);
  CHECK(std::isnan(auc(nan, 0, 1)));
  CHECK(std::isnan(figure("auc", at::full({3, 2}, infinity), targets)));
  CHECK(std::isnan(figure("auc", at::zeros({3, 2}), at::zeros({3}, at::kLong))));
  CHECK(std::isnan(figure("auc", at::zeros({3, 2}), at::full({3}, -100, at::kLong))));
  // People would read "-nan".
  CHECK(!std::signbit(figure("auc", at::zeros({3, 2}), at::zeros({3}, at::kLong))));
  CHECK(!std::signbit(figure("f1_macro", at::zeros({3, 2}), at::full({3}, -100, at::kLong))));
  CHECK(message_of<ValueError>([] {
          (void)figure("auc", at::zeros({3, 10}), at::zeros({3}, at::kLong));
        }) ==
        "auc: is for two classes, but outputs have 10; f1, precision and recall are for any "
        "number of them");
}

TEST_CASE("outputs with a NaN predict no class, and of equal ones the first is predicted",
          "[objectives]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor outputs =
      at::tensor({nan, 1.0, 0.0, 0.0, 2.0, nan, 3.0, 3.0, 3.0, 0.0, 1.0, 1.0}, at::kDouble)
          .view({4, 3});
  const at::Tensor targets = at::tensor({0, 1, 0, 1}, at::kLong);
  const at::Tensor confusion = objectives::make_confusion(std::nullopt)->add(outputs, targets);
  CHECK(confusion.equal(at::tensor({1, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0}, at::kDouble)));
  CHECK(figure("accuracy", outputs, targets) == 0.5);
  CHECK(figure("precision", outputs, targets) == 1);
  CHECK(figure("recall", outputs, targets) == 0.5);
  CHECK(figure("f1", outputs, targets) == Approx(2.0 / 3).epsilon(1e-15));
  CHECK(figure("recall_weighted", outputs, targets) == 0.5);
}
