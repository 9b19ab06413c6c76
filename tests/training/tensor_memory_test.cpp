#include "framework/maps/tensor_memory.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>

#include "framework/base/errors.h"
#include "framework/training/block.h"
#include "framework/training/recompute.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"

namespace lockstep::training {
using maps::TensorMemory;

namespace {

constexpr std::int64_t kSamples = 1000;
constexpr std::int64_t kBytes = kSamples * 64 * 4;  // of the values between layers

class Layer : public Block {
 public:
  Layer() : weight(register_parameter("weight", at::zeros({64, 64}))) {}
  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = input;
    for (int i = 0; i < 8; ++i) x = at::relu(at::linear(x, weight));
    return x;
  }
  at::Tensor weight;
};

}  // namespace

TEST_CASE("the most memory that tensors have at a time is counted, not what was there before") {
  at::Tensor before = at::empty({1000});
  const TensorMemory memory;
  CHECK(memory.peak() == 0);
  before.reset();
  { const at::Tensor first = at::empty({250}); }
  const at::Tensor second = at::empty({500});
  const at::Tensor third = at::empty({100});
  CHECK(memory.peak() == 2400);
  {
    const TensorMemory inner;
    const at::Tensor fourth = at::empty({10});
    CHECK(inner.peak() == 40);
  }
  CHECK(memory.peak() == 2400);
}

TEST_CASE("tensors that would take more than a limit are refused before they are made") {
  const TensorMemory memory(4000);
  at::Tensor first = at::empty({250});
  const auto message = testing::message_of<ValueError>([] { (void)at::empty({751}); });
  CHECK(message == "tensors take more than 3.9 KiB");
  CHECK(memory.peak() == 1000);
  const at::Tensor second = at::empty({750});
  first.reset();
  const at::Tensor third = at::empty({250});
  CHECK(memory.peak() == 4000);
}

TEST_CASE("recomputation keeps a block's input in place of what is between its layers") {
  const auto peak = [](bool recomputes) {
    const auto first = std::make_shared<Layer>(), second = std::make_shared<Layer>();
    const at::Tensor input = at::zeros({kSamples, 64});
    const TensorMemory memory;
    at::Tensor x = input;
    for (const auto& layer : {first, second}) x = recomputes ? recompute(*layer, x) : (*layer)(x);
    x.sum().backward();
    return memory.peak();
  };
  const std::int64_t whole = peak(false), recomputed = peak(true);
  CHECK(whole > 16 * kBytes);
  CHECK(recomputed < whole - 5 * kBytes);
}

}  // namespace lockstep::training
