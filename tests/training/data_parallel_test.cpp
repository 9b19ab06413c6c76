#include "framework/training/data_parallel.h"

#include <atomic>
#include <cstdint>
#include <source_location>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/sgd.h>

#include "framework/axes/environment.h"
#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/maps/pmap.h"
#include "framework/training/zero.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/training/placements.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("four lines make any LibTorch loop data-parallel") {
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
    const auto result = result_of_map(4, [&] {
      OddModel model;
      torch::optim::SGD optimizer(each_once(model), torch::optim::SGDOptions(0.05).momentum(0.9));
      DataParallel parallel(model, "i", {.overlap = overlap});
      for (std::int64_t step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        parallel.backward(mean_loss(model, samples(step, 3 * axis_index("i"), 3)));
        optimizer.step();
      }
      return copies(model);
    });
    for (const auto& [name, value] : expected) {
      INFO(name);
      CHECK(result.at(name).allclose(value, 1e-4, 1e-5));
    }
  }
}

TEST_CASE("gradients of a tree's leaves become their means, over accumulated microbatches") {
  pmap(
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
        const auto clear = [&] {
          for (const auto& [name, parameter] : tree) parameter.mutable_grad().reset();
        };
        for (int round = 0; round < 2; ++round) {
          clear();
          parallel.backward(loss(1));
          expect(tree["a"].grad(), at::full({2, 3}, 1.5));
          expect(tree["b"].grad(), at::full({}, 15.0, at::kDouble));
          expect(tree["c"].grad(), at::full({4}, 1.5, at::kBFloat16));
          expect(tree["d"].grad(), at::full({5}, 2.0));
        }
        clear();
        parallel.accumulate(loss(1));
        parallel.accumulate(loss(2));
        parallel.backward(loss(4));
        expect(tree["a"].grad(), at::full({2, 3}, 7 * 1.5));
        expect(tree["d"].grad(), at::full({5}, 6.0));
        clear();
        parallel.backward(index == 0 ? Tensor() : loss(1));
        expect(tree["a"].grad(), at::full({2, 3}, 1.5));
      },
      {.axis_size = 4})();
}

TEST_CASE("backward adds to the gradient that is there, whichever way it comes") {
  pmap(
      [] {
        const auto index = static_cast<double>(axis_index("i"));
        const auto leaf = [](at::ScalarType type) {
          return at::ones({3}, type).set_requires_grad(true);
        };
        const std::vector<Tensor> leaves{leaf(at::kFloat), leaf(at::kBFloat16), leaf(at::kFloat)};
        DataParallel parallel(leaves, "i");
        // Means of 1.5 and 3; the last leaf has a gradient of the program's own alone.
        const auto loss = [&] {
          return (leaves[0] * index).sum() + (leaves[1] * (2 * index)).sum().to(at::kFloat);
        };
        leaves[2].mutable_grad() = at::full({3}, 7.0);
        const auto expect_sums = [&](double times) {
          const std::vector<double> sums{1.5 * times, 3 * times, 7};
          for (std::size_t i = 0; i < leaves.size(); ++i) {
            if (leaves[i].grad().to(at::kFloat).equal(at::full({3}, sums[i]))) continue;
            throw Error("leaf " + std::to_string(i) + " after " + std::to_string(times));
          }
        };
        parallel.backward(loss());
        expect_sums(1);
        parallel.backward(loss());
        expect_sums(2);
        parallel.accumulate((leaves[0] * 0).sum());  // does not reach the others
        parallel.accumulate(loss());
        parallel.backward(loss());
        expect_sums(4);
        loss().backward();
        expect_sums(5);
        parallel.backward(Tensor());
        expect_sums(5);
        leaves[0].grad().zero_();
        leaves[1].mutable_grad() = at::zeros({3}, at::kBFloat16);
        parallel.backward(loss(), {.retain_graph = false, .create_graph = true});
        expect_sums(1);
      },
      {.axis_size = 4})();
}

TEST_CASE("a gradient that the program holds is not written any more once it is another's") {
  pmap(
      [] {
        const auto index = static_cast<double>(axis_index("i"));
        OddModel model;
        DataParallel parallel(model, "i");
        OddModel other;
        ZeroTrainer trainer(other, {.axis_name = "i"});
        struct Held {
          Tensor gradient, alias, values;
        };
        std::vector<Held> held;
        const auto hold = [&](const Tensor& gradient) {
          if (gradient.defined()) {
            held.push_back({gradient, gradient.detach().flatten(), gradient.clone()});
          }
        };
        for (std::int64_t step = 0; step < 4; ++step) {
          clear_gradients(model);
          const auto loss_of = [&](OddModel& of, double factor) {
            return mean_loss(of, samples(step, axis_index("i"), 2)) * (factor + index);
          };
          if (step == 2) parallel.accumulate(loss_of(model, 1));
          if (step == 3) {
            parallel.backward(Tensor());  // writes zeros where others have none either
          } else {
            step == 1 ? loss_of(model, 3).backward() : parallel.backward(loss_of(model, 3));
          }
          for (const Tensor& parameter : model.parameters()) hold(parameter.grad());
          trainer.backward(loss_of(other, 1));
          for (const Tensor& parameter : other.parameters()) hold(parameter.grad());
          trainer.visit_gradients([&](const std::string&, const Tensor& mean) { hold(mean); });
          (void)trainer.step(0.1);
        }
        if (held.size() < 30) throw Error("too few");
        for (const Held& one : held) {
          if (!one.gradient.equal(one.values)) throw Error("a gradient was written");
          if (!one.alias.equal(one.values.flatten())) throw Error("an alias was written");
        }
      },
      {.axis_size = 3})();
}

TEST_CASE("a gradient that is zeroed in place stays the parameter's, as autograd has it") {
  pmap(
      [] {
        const Tensor leaf = at::ones({3}).set_requires_grad(true);
        DataParallel parallel(std::vector{leaf}, "i");
        parallel.backward((leaf * static_cast<double>(axis_index("i"))).sum());
        const Tensor gradient = leaf.grad();
        gradient.zero_();
        parallel.backward((leaf * 2).sum());
        if (!leaf.grad().is_same(gradient) || !gradient.equal(at::full({3}, 2.0))) {
          throw Error("another tensor");
        }
      },
      {.axis_size = 2})();
}

TEST_CASE("a leaf that stands twice in a tree is one parameter") {
  pmap(
      [] {
        const Tensor shared = at::ones({3}).set_requires_grad(true);
        const std::vector<Tensor> tree{shared, shared};
        DataParallel parallel(tree, "i");
        parallel.backward((shared * (1.0 + static_cast<double>(axis_index("i")))).sum());
        if (!shared.grad().equal(at::full({3}, 1.5))) throw Error("another mean");
      },
      {.axis_size = 2})();
}

TEST_CASE("a tree of no leaves trains nothing, and its losses' other gradients are the replica's") {
  pmap(
      [] {
        DataParallel parallel(std::vector<Tensor>{}, "i");
        const auto index = static_cast<double>(axis_index("i"));
        const Tensor input = at::ones({3}).set_requires_grad(true);
        parallel.backward(Tensor());
        parallel.accumulate((input * index).sum());
        parallel.backward((input * index).sum());
        parallel.check_agreement();
        if (!input.grad().equal(at::full({3}, 2 * index))) throw Error("another gradient");
      },
      {.axis_size = 2})();
}

TEST_CASE("what is no parameter is refused by name") {
  pmap(
      [] {
        const std::vector<Tensor> tree{at::ones({2}, at::kLong)};
        expect_contains(message_of<ValueError>([&] { DataParallel(tree, "i"); }),
                        "parameter 'leaf 0' must be a dense leaf tensor");
        const std::vector<Tensor> frozen{at::ones({2})};
        const std::string refused = message_of<ValueError>([&] { DataParallel(frozen, "i"); });
        if (refused != "DataParallel: leaf 0 requires no gradient") throw Error(refused);
      },
      {.axis_size = 2})();
}

TEST_CASE("parameters that are not trained start alike, too") {
  pmap(
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
      },
      {.axis_size = 3})();
}

TEST_CASE("a step sends nothing but gradients, unless a parameter is unused") {
  const Quiet quiet;
  for (const bool has_unused : {false, true}) {
    std::atomic<std::int64_t> more = 0;  // bytes than those of one reduction
    const int status = launch(
        [&] {
          // With the place in which a replica says that it has unused ones: 512 elements.
          const at::Tensor large = at::ones({384}).set_requires_grad(true);
          const at::Tensor small = at::ones({64}).set_requires_grad(true);
          DataParallel parallel(std::vector{large, small}, "data", {.may_repeat_samples = true});
          const AxisCall call{"test", "data", std::source_location::current()};
          const comm::Ledger* const ledger = &replicas_of(call, {}, GroupSizes::equal).ledger();
          const auto sent_by = [&](const auto& work) {
            const std::uint64_t before = ledger->bytes_sent.load();
            work();
            return static_cast<std::int64_t>(ledger->bytes_sent.load() - before);
          };
          const auto step = [&] {
            for (const at::Tensor& leaf : {large, small}) leaf.mutable_grad().reset();
            const auto loss = [&] { return has_unused ? large.sum() : large.sum() + small.sum(); };
            parallel.accumulate(loss());
            parallel.backward(loss());
          };
          step();
          more += sent_by(step) - sent_by([] { pmean_(at::zeros({512}), "data"); });
        },
        threads(2, Backend::gloo));
    REQUIRE(status == 0);
    CHECK((more > 0) == has_unused);
    CHECK(more >= 0);
  }
}
