#include "framework/training/keyed_draws.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <torch/nn/modules/linear.h>

#include "framework/base/random.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/maps/pmap.h"
#include "framework/training/data_parallel.h"
#include "framework/training/deferred_parameters.h"
#include "framework/training/process_generator.h"
#include "framework/training/zero.h"
#include "tests/catch.h"
#include "tests/training/placements.h"
#include "tests/training/random_models.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr std::uint64_t kSeed = 7;

torch::nn::Linear linear() {
  return seeded(1, [] { return torch::nn::Linear(4, 4); });
}

// As keyed_draws.h says it, of one trainer.
at::Generator generator(const std::string& op, std::int64_t numbers, std::int64_t step,
                        std::int64_t microbatch, std::optional<std::int64_t> replica,
                        std::int64_t call, bool trains = true) {
  Key key =
      Key(kSeed).fold("torch").fold(step).fold(microbatch).fold(op).fold(numbers).fold(trains);
  if (replica) key = key.fold(*replica);
  return at::detail::createCPUGenerator(key.fold(call).bits());
}

void backward(DataParallel& parallel, torch::nn::Linear& net, bool is_last = true) {
  const at::Tensor loss = net->forward(at::ones({2, 4})).sum();
  is_last ? parallel.backward(loss) : parallel.accumulate(loss);
}

}  // namespace

TEST_CASE(
    "LibTorch's modules with dropout train to the same bits in all placements, recomputed too") {
  const Quiet quiet;
  check_training_everywhere(libtorch_model);
  const State expected = trained_state_in_pmap(libtorch_model, 4, {});
  CHECK(first_difference(trained_state_in_pmap(recomputed_libtorch_model, 4, {}), expected) == "");
  CHECK(first_difference(trained_state_in_pmap(libtorch_model, 4, {.seed = 1}), expected) != "");
  const int threads = at::get_num_threads();
  at::set_num_threads(threads == 1 ? 2 : 1);
  CHECK(first_difference(trained_state_in_pmap(libtorch_model, 4, {}), expected) == "");
  at::set_num_threads(threads);
}

TEST_CASE(
    "each draw of LibTorch's has its own key: of operator, step, microbatch, replica and call") {
  pmap(
      [] {
        auto net = linear();
        DataParallel parallel(*net, "i", {.seed = kSeed, .randomness = Randomness::strict});
        const std::int64_t replica = axis_index("i");
        const auto check = [&](std::int64_t step, std::int64_t microbatch) {
          for (std::int64_t call = 0; call < 2; ++call) {
            const auto own = [&](const char* op, std::int64_t numbers) {
              return generator(op, numbers, step, microbatch, replica, call);
            };
            expect(at::rand({3}).equal(at::rand({3}, own("aten::uniform_", 3))), "rand");
            expect(at::randn({20}).equal(at::randn({20}, own("aten::normal_", 20))), "randn");
            const at::Tensor ones = at::ones({30});
            const at::Tensor kept =
                at::empty_like(ones).bernoulli_(0.6, own("aten::bernoulli_", 30));
            expect(at::dropout(ones, 0.4, true).equal(kept / 0.6), "dropout");
            // Of which replicas take parts.
            expect(at::randperm(9).equal(
                       at::randperm(9, generator("aten::randperm", 9, step, microbatch, {}, call))),
                   "randperm");
          }
        };
        check(0, 0);
        backward(parallel, net, /*is_last=*/false);
        check(0, 1);
        backward(parallel, net);
        check(1, 0);
      },
      {.axis_size = 3})();
}

TEST_CASE("what is drawn into parameters is the same on all replicas") {
  pmap(
      [] {
        auto net = linear();
        const DataParallel parallel(*net, "i", {.seed = kSeed, .randomness = Randomness::strict});
        net->reset_parameters();
        const torch::nn::Linear made(4, 4);
        expect(!made->weight.equal(net->weight), "a second draw is the first one");
        for (const at::Tensor& values : {net->weight, net->bias, made->weight}) {
          expect(pmax(values.detach(), "i").equal(values), "replicas have drawn others");
        }
      },
      {.axis_size = 2})();
  for (const int stage : {0, 3}) {
    (void)result_of_job(threads(2, Backend::gloo), [&] {
      auto net = linear();
      ZeroTrainer trainer(*net, {.stage = stage, .randomness = Randomness::strict});
      for (int step = 0; step < 2; ++step) {
        trainer.edit_parameters([&] { net->weight.copy_(at::randn({4, 4})); });
        trainer.backward(net->forward(at::ones({2, 4})).sum());
        trainer.step(0.1);
      }
      trainer.check_agreement();
      return true;
    });
  }
}

TEST_CASE("what an evaluation draws moves no draw of training") {
  pmap(
      [] {
        auto net = linear();
        const DataParallel parallel(*net, "i", {.seed = kSeed});
        const std::int64_t replica = axis_index("i");
        net->eval();
        expect(at::rand({3}).equal(
                   at::rand({3}, generator("aten::uniform_", 3, 0, 0, replica, 0, false))),
               "evaluation");
        net->train();
        expect(at::rand({3}).equal(at::rand({3}, generator("aten::uniform_", 3, 0, 0, replica, 0))),
               "training");
      },
      {.axis_size = 2})();
}

TEST_CASE("with several trainers, too, what an evaluation draws moves no draw of training") {
  pmap(
      [] {
        auto one = linear();
        auto other = linear();
        auto teacher = linear();  // which is never in training mode
        teacher->eval();
        const auto drawn = [&](std::vector<torch::nn::Linear> evaluated) {
          const DataParallel first(*one, "i", {.seed = kSeed});
          const DataParallel second(*other, "i", {.seed = kSeed});
          const DataParallel third(*teacher, "i", {.seed = kSeed});
          for (auto& network : evaluated) network->eval();
          if (!evaluated.empty()) (void)at::rand({3});
          for (auto& network : evaluated) network->train();
          return at::rand({3});
        };
        const at::Tensor expected = drawn({});
        expect(drawn({one}).equal(expected), "the first");
        expect(drawn({other}).equal(expected), "the second");
        expect(drawn({one, other}).equal(expected), "both");
      },
      {.axis_size = 2})();
}

TEST_CASE("trainers that live together draw by the steps of both") {
  pmap(
      [] {
        auto one = linear();
        auto other = linear();
        DataParallel first(*one, "i", {.seed = kSeed});
        const at::Tensor alone = at::rand({3});
        std::vector<at::Tensor> drawn{alone};
        {
          DataParallel second(*other, "i", {.seed = kSeed});
          drawn.push_back(at::rand({3}));
          backward(first, one);
          drawn.push_back(at::rand({3}));
          backward(second, other);
          drawn.push_back(at::rand({3}));
        }
        expect(at::rand({3}).equal(
                   at::rand({3}, generator("aten::uniform_", 3, 1, 0, axis_index("i"), 0))),
               "the first one alone again");
        for (std::size_t i = 0; i < drawn.size(); ++i) {
          for (std::size_t j = 0; j < i; ++j) expect(!drawn[i].equal(drawn[j]), "the same draws");
        }
      },
      {.axis_size = 2})();
}

TEST_CASE("generators of the program's own, seeds and seeded initializations stay theirs") {
  const auto draw = [] { return at::rand({3}); };
  const at::Tensor initial = seeded(3, draw);
  pmap(
      [&] {
        at::Generator process = at::detail::getDefaultCPUGenerator();
        const at::Tensor before = process.get_state();
        const auto drawn_by = [](std::uint64_t seed) {
          return at::rand({3}, at::detail::createCPUGenerator(seed));
        };
        auto net = linear();
        DataParallel parallel(*net, "i", {.seed = kSeed});
        expect(drawn_by(5).equal(drawn_by(5)), "a generator of its own");
        expect(seeded(3, draw).equal(initial), "a seeded initialization");
        expect(draw().equal(at::rand({3}, generator("aten::uniform_", 3, 0, 0, 0, 0))), "a key");
        expect(process.get_state().equal(before), "the process-wide generator has drawn");
        process.set_current_seed(11);  // as torch::manual_seed()
        expect(draw().equal(drawn_by(11)), "a seed after the trainer was made");
        backward(parallel, net);
        expect(parallel.has_random_draws(), "nobody noticed");
        {
          auto other = linear();
          const DataParallel later(*other, "i", {.seed = kSeed});
          const at::Tensor state = process.get_state();
          (void)draw();
          expect(process.get_state().equal(state), "the next trainer has no keys");
        }
        process.set_state(before);
      },
      {.axis_size = 1})();
}

TEST_CASE("first values that a trainer asks for are drawn as if it were not there") {
  pmap(
      [] {
        at::Generator process = at::detail::getDefaultCPUGenerator();
        const at::Tensor before = process.get_state();
        process.set_current_seed(11);
        auto net = linear();
        defer(*net);
        const auto draw = [](const std::string& name) {
          return name == "weight" ? at::randn({4, 4}) : at::ones({4});
        };
        const ZeroTrainer trainer(*net, {.axis_name = "i", .initialize = draw});
        expect(net->weight.equal(at::randn({4, 4}, at::detail::createCPUGenerator(11))), "keyed");
        process.set_state(before);
      },
      {.axis_size = 1})();
}

TEST_CASE("draws in a map inside the replica have no keys, which is noticed") {
  pmap(
      [] {
        auto net = linear();
        DataParallel parallel(*net, "i");
        (void)pmap([] { return at::rand({3}); }, {.axis_name = "inner", .axis_size = 2})();
        backward(parallel, net);
        expect(parallel.has_random_draws(), "nobody noticed");
      },
      {.axis_size = 1})();
}

TEST_CASE("all of LibTorch's operators that take a generator on the CPU draw so") {
  using c10::DispatchKey;
  int count = 0;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !op->hasKernelForDispatchKey(DispatchKey::CPU)) continue;
    for (const auto& argument : op->schema().arguments()) {
      if (argument.type()->repr_str().find("Generator") == std::string::npos) continue;
      INFO(name);
      CHECK(argument.name() == "generator");
      CHECK(op->hasKernelForDispatchKey(DispatchKey::BackendSelect));
      ++count;
    }
  }
  CHECK(count > 20);
}
