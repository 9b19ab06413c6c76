#include "framework/training/forward_place.h"

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/maps/pmap.h"
#include "framework/training/batch_norm.h"
#include "framework/training/block.h"
#include "framework/training/dropout.h"
#include "framework/training/process_generator.h"
#include "framework/training/zero.h"
#include "tests/catch.h"

namespace lockstep {
namespace {

// As users meet it: what() of LibTorch's exceptions, without the backtrace.
std::string error_of(auto& module, const at::Tensor& inputs) {
  try {
    (void)run_forward(module, inputs);
  } catch (const std::exception& error) {
    return message_text(error);
  }
  return "no error";
}

// A weight of its own, which it transposes, and after it one that does not fit.
class Bare : public torch::nn::Module {
 public:
  Bare()
      : first(register_parameter("first", at::ones({4, 3}))),
        second(register_parameter("second", at::ones({2, 5}))) {}
  at::Tensor forward(const at::Tensor& x) {
    ++runs;
    return x.mm(first.t()).mm(second.t());
  }

  at::Tensor first, second;
  int runs = 0;
};

class PlacedBlock : public Block {
 public:
  explicit PlacedBlock(std::int64_t in)
      : linear_(register_module("linear", torch::nn::Linear(in, 4))) {}
  at::Tensor forward(const at::Tensor& input) override { return linear_->forward(input); }

 private:
  torch::nn::Linear linear_;
};

// Layers between what draws, and what works over replicas. The second gets too few values if asked.
class PlacedNetwork : public torch::nn::Module {
 public:
  PlacedNetwork()
      : one(register_module("one", std::make_shared<PlacedBlock>(3))),
        norm(register_module("norm", BatchNorm(4))),
        drop(register_module("drop", Dropout(0.5))),
        two(register_module("two", std::make_shared<PlacedBlock>(4))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor values = drop->forward(norm->forward((*one)(x)));
    return (*two)(is_faulty ? values.slice(1, 0, 3) : values);
  }

  std::shared_ptr<PlacedBlock> one;
  BatchNorm norm;
  Dropout drop;
  std::shared_ptr<PlacedBlock> two;
  bool is_faulty = false;
};

}  // namespace

TEST_CASE("a forward's exception names the module whose parameter the operator had") {
  auto net = seeded(1, [] {
    const auto deep = std::make_shared<PlacedBlock>(5);
    return torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::ReLU(), deep);
  });
  const at::Tensor inputs = at::ones({2, 3});
  // Some versions of LibTorch have linear there, others what it consists of.
  CHECK_THAT(error_of(*net, inputs), ContainsSubstring("(2x4 and 5x4) (in '2.linear': ") &&
                                         ContainsSubstring("Float (2, 4)") &&
                                         Catch::Matchers::EndsWith("; inputs Float (2, 3))"));
  CHECK_THAT(error_of(*net, at::zeros({2, 3}, at::kLong)),
             ContainsSubstring("(in '0': ") && ContainsSubstring("Long (2, 3)"));

  // Views are known by what they are views of. The forward has run once more, and no more often.
  Bare bare;
  CHECK_THAT(error_of(bare, inputs),
             ContainsSubstring("(in the model's 'second': mm of Float (2, 4), Float (5, 2); "));
  CHECK(bare.runs == 2);
}

TEST_CASE("an exception keeps its type where it gains its place, and an Error its kind") {
  struct Thrower : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) {
      if (x.numel() == 1) throw DataError("no vocabulary");
      if (x.numel() == 2) throw CommError("a replica is gone");
      if (x.numel() == 3) throw std::bad_alloc();
      if (x.numel() == 4) throw std::out_of_range("no such word");
      if (x.numel() == 5) C10_THROW_ERROR(IndexError, "no such row");
      if (x.numel() == 6) throw NonFiniteStep("diverged");
      if (x.numel() == 8) throw std::filesystem::filesystem_error("no such folder", {});
      if (x.numel() == 9) {
        throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
      }
      return x;
    }
  } module;
  CHECK_THROWS_AS(run_forward(module, at::ones({1})), DataError);
  CHECK(error_of(module, at::ones({1})) == "no vocabulary (inputs Float (1))");
  CHECK(error_of(module, at::ones({2})) == "a replica is gone");
  CHECK_THROWS_AS(run_forward(module, at::ones({3})), std::bad_alloc);
  CHECK(error_of(module, at::ones({4})) == "no such word (inputs Float (4))");
  try {
    placed([] { return "in a loop"; }, [&] { (void)run_forward(module, at::ones({4})); });
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(message_text(error) == "no such word (inputs Float (4); in a loop)");
    CHECK_THROWS_AS(std::rethrow_if_nested(error), std::out_of_range);
  }
  CHECK_THROWS_AS(run_forward(module, at::ones({5})), c10::IndexError);
  // A type that its kind and name do not tell.
  CHECK_THROWS_AS(run_forward(module, at::ones({6})), NonFiniteStep);
  CHECK(run_forward(module, at::ones({7})).numel() == 7);
  CHECK_THAT(error_of(module, at::ones({8})),
             ContainsSubstring("no such folder") && ContainsSubstring(" (inputs Float (8))"));
  CHECK_THROWS_AS(run_forward(module, at::ones({9})), std::system_error);
}

TEST_CASE("the second run draws no keys, calls no collectives and counts no statistics") {
  // Only one replica fails: what others would wait for must not be called again.
  const auto run = [] {
    const auto make = [] { return seeded(1, [] { return std::make_shared<PlacedNetwork>(); }); };
    const auto net = make();
    const auto twin = make();
    net->is_faulty = axis_index("data") == 1;
    const ZeroTrainer trainer(*net, {.axis_name = "data", .stage = 3});
    const ZeroTrainer other(*twin, {.axis_name = "data", .stage = 3});
    const at::Tensor inputs = at::ones({2, 3}) * (axis_index("data") + 1);
    const std::string error = error_of(*net, inputs);
    (void)twin->forward(inputs);
    const at::Tensor many = at::ones({64});
    if (!net->norm->running_mean.equal(twin->norm->running_mean)) throw Error("counted again");
    if (!net->drop->forward(many).equal(twin->drop->forward(many))) throw Error("drawn again");
    if (net->is_faulty) throw Error(error);
  };
  try {
    pmap(run, {.axis_name = "data", .axis_size = 2})();
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK_THAT(error.what(), ContainsSubstring("replica 1: ") &&
                                 ContainsSubstring(" (in 'two.linear': ") &&
                                 ContainsSubstring("; inputs Float (2, 3))"));
  }
}

}  // namespace lockstep
