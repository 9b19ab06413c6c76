#include "framework/training/data_parallel.h"

#include <mutex>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/sgd.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/replicas/pmap.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/training/models.h"

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("three lines make any LibTorch loop data-parallel") {
  constexpr std::int64_t kSteps = 20;
  OddModel plain;
  const auto each_once = [](const OddModel& model) {
    std::vector<at::Tensor> parameters;
    for (const auto& item : model.named_parameters()) {
      if (item.key() != "same_scale") parameters.push_back(item.value());
    }
    return parameters;
  };
  torch::optim::SGD reference(each_once(plain), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (std::int64_t step = 0; step < kSteps; ++step) {
    reference.zero_grad();
    mean_loss(plain, samples(step, 0, 12)).backward();
    reference.step();
  }
  const auto expected = copies(plain);
  for (const Overlap overlap : {Overlap::automatic, Overlap::on}) {
    std::mutex mutex;
    std::map<std::string, at::Tensor> result;
    (void)pmap(
        [&] {
          OddModel model;
          torch::optim::SGD optimizer(each_once(model),
                                      torch::optim::SGDOptions(0.05).momentum(0.9));
          DataParallel parallel(model, "i", {.overlap = overlap});
          for (std::int64_t step = 0; step < kSteps; ++step) {
            parallel.backward(mean_loss(model, samples(step, 3 * axis_index("i"), 3)));
            optimizer.step();
          }
          const std::lock_guard lock(mutex);
          if (result.empty()) result = copies(model);
          if (first_difference(result, copies(model)) != "") throw Error("replicas differ");
          return at::zeros({});
        },
        {.axis_size = 4})();
    for (const auto& [name, value] : expected) {
      INFO(name);
      CHECK(result.at(name).allclose(value, 1e-4, 1e-5));
    }
  }
}

TEST_CASE("gradients of a tree's leaves become their means, over accumulated microbatches") {
  (void)pmap(
      [] {
        const auto index = static_cast<double>(axis_index("i"));
        const auto leaf = [](const at::Tensor& value) { return value.set_requires_grad(true); };
        std::map<std::string, Tensor> tree{{"a", leaf(at::ones({2, 3}))},
                                           {"b", leaf(at::ones({}, at::kDouble))},
                                           {"c", leaf(at::ones({4}, at::kBFloat16))},
                                           {"d", leaf(at::ones({5}))}};
        DataParallel parallel(tree, "i");
        const auto loss = [&](double factor) {
          Tensor sum = (tree["a"].sum() + tree["c"].sum().to(at::kFloat)) * (factor * index) +
                       (tree["b"] * (10 * index)).to(at::kFloat);
          return index == 2 ? sum + tree["d"].sum() * 8 : sum;
        };
        const auto expect = [](const Tensor& actual, const Tensor& expected) {
          if (!actual.equal(expected)) throw Error("another mean");
        };
        for (int round = 0; round < 2; ++round) {
          parallel.backward(loss(1));
          expect(tree["a"].grad(), at::full({2, 3}, 1.5));
          expect(tree["b"].grad(), at::full({}, 15.0, at::kDouble));
          expect(tree["c"].grad(), at::full({4}, 1.5, at::kBFloat16));
          expect(tree["d"].grad(), at::full({5}, 2.0));
        }
        parallel.accumulate(loss(1));
        parallel.accumulate(loss(2));
        parallel.backward(loss(4));
        expect(tree["a"].grad(), at::full({2, 3}, 7 * 1.5));
        expect(tree["d"].grad(), at::full({5}, 6.0));
        parallel.backward(index == 0 ? Tensor() : loss(1));
        expect(tree["a"].grad(), at::full({2, 3}, 1.5));
        return at::zeros({});
      },
      {.axis_size = 4})();
}

TEST_CASE("a leaf that stands twice in a tree is one parameter") {
  (void)pmap(
      [] {
        const Tensor shared = at::ones({3}).set_requires_grad(true);
        const std::vector<Tensor> tree{shared, shared};
        DataParallel parallel(tree, "i");
        parallel.backward((shared * (1.0 + static_cast<double>(axis_index("i")))).sum());
        if (!shared.grad().equal(at::full({3}, 1.5))) throw Error("another mean");
        return at::zeros({});
      },
      {.axis_size = 2})();
}

TEST_CASE("what is no parameter is refused by name") {
  (void)pmap(
      [] {
        const std::vector<Tensor> tree{at::ones({2}, at::kLong)};
        const std::string message = message_of<ValueError>([&] { DataParallel(tree, "i"); });
        if (message.find("parameter 'leaf 0' must be a dense leaf tensor") == std::string::npos) {
          throw Error(message);
        }
        const std::vector<Tensor> frozen{at::ones({2})};
        const std::string refused = message_of<ValueError>([&] { DataParallel(frozen, "i"); });
        if (refused != "DataParallel: leaf 0 requires no gradient") throw Error(refused);
        return at::zeros({});
      },
      {.axis_size = 2})();
}

TEST_CASE("parameters that are not trained start alike, too") {
  (void)pmap(
      [] {
        OddModel model;
        {
          const c10::AutoGradMode no_grad(false);
          for (const at::Tensor& parameter : model.parameters())
            parameter.add_(static_cast<double>(axis_index("i")));
        }
        const DataParallel parallel(model, "i");
        const std::string different = first_difference(copies(model), copies(OddModel()));
        if (!different.empty()) throw Error("replica 0 has another " + different);
        return at::zeros({});
      },
      {.axis_size = 3})();
}
