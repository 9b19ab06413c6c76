// Losses and metrics of a batch that is cut over replicas in unequal parts, some of them empty, are
// those of the whole batch.

#include <algorithm>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/maps/pmap.h"
#include "framework/maps/vmap.h"
#include "framework/objectives/cross_entropy.h"
#include "framework/objectives/mean_squared_error.h"
#include "framework/objectives/metric.h"
#include "framework/tree/grad.h"
#include "tests/catch.h"
#include "tests/objectives/numbers.h"

using namespace lockstep;
using lockstep::testing::random_classes;
using lockstep::testing::random_values;

namespace {

constexpr std::int64_t kSamples = 23;

struct Samples {
  Tensor outputs, targets;
};
LOCKSTEP_TREE(Samples, outputs, targets)

// Where the parts begin, and the end of the last: random, so some may be empty, and the first is.
std::vector<std::int64_t> cuts(const Key& key, std::int64_t parts) {
  std::vector<std::int64_t> begins{0};
  for (std::int64_t part = 1; part < parts; ++part) {
    const std::uint64_t bits = key.draw(static_cast<std::uint64_t>(part));
    begins.push_back(part == 1 ? 0 : static_cast<std::int64_t>(bits % (kSamples + 1)));
  }
  std::ranges::sort(begins);
  begins.push_back(kSamples);
  return begins;
}

Samples part_of(const Samples& all, const std::vector<std::int64_t>& begins, std::int64_t index) {
  const auto part = static_cast<std::size_t>(index);
  const std::int64_t size = begins[part + 1] - begins[part];
  return {all.outputs.narrow(0, begins[part], size), all.targets.narrow(0, begins[part], size)};
}

// What `f` returns for the parts of all replicas, by the map of this name.
template <typename F>
auto on_replicas(const std::string& map, std::int64_t replicas, const F& f, const Samples& all) {
  const std::vector<std::int64_t> begins = cuts(Key(60).fold(map), replicas);
  const auto of_part = [&](const Samples& whole) {
    return f(whole,
             [&](const Samples& samples) { return part_of(samples, begins, axis_index("data")); });
  };
  if (map == "pmap") {
    return pmap(of_part,
                {.axis_name = "data", .in_axes = std::nullopt, .axis_size = replicas})(all);
  }
  return vmap(of_part, {.axis_name = "data", .in_axes = std::nullopt, .axis_size = replicas})(all);
}

// `is_exact`: to the last bit.
void check_metric(const std::string& name, const std::shared_ptr<const Loss>& loss,
                  const Samples& all, const std::string& map, std::int64_t replicas,
                  bool is_exact = false) {
  INFO(name << ", " << map << " of " << replicas);
  const auto metric = make_metric(name, loss);
  const Tensor expected = metric->add(all.outputs, all.targets);
  const Tensor sums = on_replicas(
      map, replicas,
      [&](const Samples& whole, const auto& own) {
        const Samples part = own(whole);
        return of_all_replicas(*metric, metric->add(part.outputs, part.targets), "data");
      },
      all);
  for (std::int64_t replica = 0; replica < replicas; ++replica) {
    if (is_exact) {
      CHECK(sums[replica].equal(expected));
      CHECK(metric->value(sums[replica]) == metric->value(expected));
      continue;
    }
    CHECK(at::allclose(sums[replica], expected, 1e-12, 0));
    CHECK(metric->value(sums[replica]) == Approx(metric->value(expected)).epsilon(1e-11));
  }
}

void check_loss(const Loss& loss, const Samples& all, const std::string& map,
                std::int64_t replicas) {
  INFO(map << " of " << replicas);
  const auto mean_of = [&](const Tensor& outputs, const Tensor& targets) {
    return loss.mean(outputs, targets);
  };
  const auto [expected, expected_gradient] = value_and_grad(mean_of)(all.outputs, all.targets);

  // This replica's part of the job's loss, and the gradient of it: psum gives the whole.
  const auto [mean, gradient] = on_replicas(
      map, replicas,
      [&](const Samples& whole, const auto& own) {
        const auto own_part = [&](const Tensor& outputs) {
          const Samples part = own(Samples{outputs, whole.targets});
          const double weight = part.targets.numel() == 0 ? 0 : loss.weight(part.targets);
          const double total = psum(weight, "data");
          if (part.targets.numel() == 0) return part.outputs.sum();
          return loss.mean(part.outputs, part.targets) * (weight / total);
        };
        return psum(value_and_grad(own_part)(whole.outputs), "data");
      },
      all);
  for (std::int64_t replica = 0; replica < replicas; ++replica) {
    CHECK(at::allclose(mean[replica], expected, 1e-13, 0));
    CHECK(at::allclose(gradient[replica], expected_gradient, 1e-12, 1e-16));
  }
}

}  // namespace

TEST_CASE("metrics of unequal parts are the whole batch's", "[objectives]") {
  const std::string map = GENERATE("pmap", "vmap");
  const auto replicas = GENERATE(1, 2, 3, 4, 5, 8);
  const Key key(61);
  const Samples tokens{random_values(key.fold("outputs"), {kSamples, 3, 6}),
                       random_classes(key.fold("targets"), {kSamples, 3}, 6, -100)};
  const auto loss =
      make_cross_entropy({.label_smoothing = 0.1, .class_weights = {1, 0, 0.5, 2, 3, 0.1}});
  for (const char* name : {"accuracy", "top_2", "top_5", "loss", "perplexity", "bits_per_byte"}) {
    check_metric(name, loss, tokens, map, replicas);
  }
  for (const char* name : {"f1", "precision_weighted", "recall_macro", "balanced_accuracy"}) {
    check_metric(name, loss, tokens, map, replicas, /*is_exact=*/true);
  }
  const Samples two{random_values(key.fold("two"), {kSamples, 2}).round(),
                    random_classes(key.fold("one of two"), {kSamples}, 2, -100)};
  check_metric("auc", make_cross_entropy(), two, map, replicas, /*is_exact=*/true);
  const Samples numbers{random_values(key.fold("values"), {kSamples, 4}),
                        random_values(key.fold("truth"), {kSamples, 4})};
  for (const char* name : {"loss", "r2", "mean_absolute_error"}) {
    check_metric(name, make_mean_squared_error(), numbers, map, replicas);
  }
  const Samples floats{numbers.outputs.to(at::kFloat), numbers.targets.to(at::kFloat)};
  check_metric("r2", make_mean_squared_error(), floats, map, replicas);
  check_metric("mean_absolute_error", make_mean_squared_error(), floats, map, replicas);
}

TEST_CASE("losses and gradients of unequal parts are the whole batch's", "[objectives]") {
  const std::string map = GENERATE("pmap", "vmap");
  const auto replicas = GENERATE(1, 2, 3, 4, 5, 8);
  const Key key(62);
  Samples tokens{random_values(key.fold("outputs"), {kSamples, 3, 6}),
                 random_classes(key.fold("targets"), {kSamples, 3}, 6, -100)};
  tokens.targets.narrow(0, kSamples - 6, 6).fill_(-100);  // there may be parts that do not count
  for (const double smoothing : {0.0, 0.1}) {
    check_loss(*make_cross_entropy({.label_smoothing = smoothing}), tokens, map, replicas);
    check_loss(*make_cross_entropy(
                   {.label_smoothing = smoothing, .class_weights = {1, 0, 0.5, 2, 3, 0.1}}),
               tokens, map, replicas);
  }
  check_loss(*make_mean_squared_error(),
             {random_values(key.fold("values"), {kSamples, 4}),
              random_values(key.fold("truth"), {kSamples, 4})},
             map, replicas);
}

// A loss of one's own needs no more than a mean.
TEST_CASE("a loss is weighted by samples, unless it says otherwise", "[objectives]") {
  class MeanAbsolute : public Loss {
   public:
    Tensor mean(const Tensor& outputs, const Tensor& targets) const override {
      return (outputs - targets).abs().mean();
    }
  };
  const MeanAbsolute loss;
  CHECK(loss.weight(at::zeros({5, 3})) == 5);
  CHECK_FALSE(loss.is_weighted_by_samples());
  CHECK_FALSE(loss.ignore_index());
  const Samples numbers{random_values(Key(63), {kSamples, 4}),
                        random_values(Key(64), {kSamples, 4})};
  check_loss(loss, numbers, "pmap", 3);
  check_metric("loss", std::make_shared<MeanAbsolute>(), numbers, "pmap", 3);
}
