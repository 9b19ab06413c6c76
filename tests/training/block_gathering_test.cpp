#include "framework/training/block_gathering.h"

#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tanh.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/training/zero_jobs.h"

// Blocks of models that are no chains, over a network.

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr std::int64_t kWidth = 64;
constexpr std::int64_t kBlockBytes = 2 * kWidth * kWidth * 4;

at::Tensor weights(double first) {
  const at::Tensor numbers = at::arange(kWidth * kWidth, at::kFloat);
  return numbers.add(first).sin().view({kWidth, kWidth}).mul(0.1);
}

// Two matrices, the second of which may be left out.
class MatrixPair : public Block {
 public:
  explicit MatrixPair(double first)
      : first_(register_parameter("first", weights(first))),
        second_(register_parameter("second", weights(first + 1))) {}
  at::Tensor forward(const at::Tensor& values) override {
    const at::Tensor inner = at::tanh(at::linear(values, first_));
    return leaves_out ? inner : at::tanh(at::linear(inner, second_));
  }
  bool leaves_out = false;

 private:
  at::Tensor first_;
  at::Tensor second_;
};

enum class Shape { chain, branches, skips };

class Net : public torch::nn::Module {
 public:
  explicit Net(Shape shape) : shape_(shape) {
    for (int i = 0; i < 6; ++i)
      blocks_.push_back(
          register_module("block" + std::to_string(i), std::make_shared<MatrixPair>(2.0 * i)));
  }
  at::Tensor forward(at::Tensor values) {
    values = (*blocks_[0])(values);
    const at::Tensor early = values;
    for (std::size_t i = 1; i < blocks_.size(); ++i) {
      MatrixPair& block = *blocks_[i];
      switch (shape_) {
        case Shape::chain:
          values = block(values);
          break;
        case Shape::branches:
          values = values + block(early);
          break;
        case Shape::skips:
          values = i + 1 < blocks_.size() ? block(values) : block(values + early) + early;
      }
    }
    return values;
  }
  MatrixPair& block(std::size_t index) { return *blocks_[index]; }

 private:
  Shape shape_;
  std::vector<std::shared_ptr<MatrixPair>> blocks_;
};

struct Trained {
  Parameters parameters;
  MemoryUse memory;
};

// What replica 0 of two over Gloo ends with.
Trained trained(Shape shape, const ZeroOptions& options, bool leaves_out = false,
                std::int64_t workers = 2) {
  return result_of_job(threads(2, Backend::gloo, workers), [&] {
    Net net(shape);
    ZeroTrainer trainer(net, options);
    net.block(3).leaves_out = leaves_out && axis_index("data") == 1;
    const at::Tensor inputs = at::ones({2, kWidth}).mul(axis_index("data") + 1);
    for (std::int64_t m = 0; m < 3 * options.accumulate; ++m) {
      trainer.backward(net.forward(inputs).pow(2).mean());
      if (m % options.accumulate == options.accumulate - 1) trainer.step(kRate);
    }
    const MemoryUse use = trainer.memory();
    const auto whole = trainer.whole_parameters();
    return Trained{copies(net), use};
  });
}

}  // namespace

TEST_CASE("at most two blocks are gathered, whatever the graph between them") {
  const Quiet quiet;
  for (const Shape shape : {Shape::chain, Shape::branches, Shape::skips}) {
    const Parameters expected = trained(shape, adam(0)).parameters;
    for (const Overlap overlap : {Overlap::on, Overlap::off}) {
      ZeroOptions options = adam(3);
      options.overlap = overlap;
      CHECK(first_difference(trained(shape, options).parameters, expected) == "");
      options.accumulate = 2;  // so that nothing is staged
      const MemoryUse memory = trained(shape, options).memory;
      INFO("shape " << static_cast<int>(shape));
      CHECK(memory.communication >= kBlockBytes);
      CHECK(memory.communication <= 2 * kBlockBytes);
    }
  }
}

TEST_CASE("a parameter that one replica does not use, at stage 3 with overlap and without") {
  const Quiet quiet;
  for (const Compression compression : {Compression::none, Compression::bf16}) {
    for (const std::int64_t workers : {2, 1}) {
      ZeroOptions options = adam(0);
      options.compression = compression;
      const Parameters expected = trained(Shape::chain, options, true, workers).parameters;
      options.stage = 3;
      for (const Overlap overlap : {Overlap::automatic, Overlap::on, Overlap::off}) {
        options.overlap = overlap;
        INFO("workers " << workers << ", overlap " << static_cast<int>(overlap));
        CHECK(first_difference(trained(Shape::chain, options, true, workers).parameters,
                               expected) == "");
      }
    }
  }
}

TEST_CASE("a block whose trainer is gone says so") {
  const Quiet quiet;
  const auto messages = results_of_job(threads(2, Backend::gloo), [] {
    Net net(Shape::chain);
    { const ZeroTrainer trainer(net, adam(3)); }
    return message_of<Error>([&] { (void)net.forward(at::ones({1, kWidth})); });
  });
  for (const std::string& message : messages)
    CHECK_THAT(message, ContainsSubstring("were cut into shards by a ZeroTrainer that is gone"));
}

TEST_CASE("what a block's backward leaves out counts as zeros, also where gradients are kept") {
  const Quiet quiet;
  // One block, so that staging would take more memory than keeping.
  struct Model : torch::nn::Module {
    at::Tensor before = register_parameter("before", weights(0));
    std::shared_ptr<MatrixPair> block = register_module("block", std::make_shared<MatrixPair>(1.0));
  };
  std::vector<std::vector<double>> norms;
  for (const int stage : {1, 3}) {
    norms.push_back(result_of_job(threads(2, Backend::gloo), [&] {
      Model model;
      ZeroTrainer trainer(model, adam(stage));
      const at::Tensor inputs = at::ones({2, kWidth}) * (axis_index("data") + 1);
      std::vector<double> found;
      for (int step = 0; step < 3; ++step) {
        model.block->leaves_out = step == 1 && axis_index("data") == 1;
        trainer.backward((*model.block)(at::linear(inputs, model.before)).pow(2).mean());
        found.push_back(trainer.step(kRate).gradient_norm);
      }
      return found;
    }));
  }
  CHECK(norms[0] == norms[1]);
}
