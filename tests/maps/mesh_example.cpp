#include "tests/maps/mesh_example.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "framework/axes/environment.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/ppermute.h"
#include "framework/collectives/psum.h"
#include "framework/maps/shard_map.h"
#include "framework/tree/grad.h"

namespace lockstep::testing {
namespace {

struct Layers {
  Tensor first, second;
};
LOCKSTEP_TREE(Layers, first, second)

Tensor numbers(at::IntArrayRef sizes, double step) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return (at::arange(count, at::kDouble) * step).sin().view(sizes);
}

Mesh mesh() {
  return Mesh({{"data", 2}, {"model", 2}});
}

// Returns a member's part of a tensor that is cut along these axes.
Tensor own_part(Tensor whole, std::int64_t dimension_of_data, std::int64_t dimension_of_model) {
  const Environment* const job = current_environment();
  if (job == nullptr) return whole;
  const AxisLevel& level = job->levels()[0];
  const std::int64_t by_data = level.size() >= 2 ? 2 : 1;
  const std::int64_t by_model = level.size() / by_data;
  if (dimension_of_data >= 0) {
    whole =
        whole.chunk(by_data, dimension_of_data)[static_cast<std::size_t>(level.rank / by_model)];
  }
  if (dimension_of_model >= 0) {
    whole =
        whole.chunk(by_model, dimension_of_model)[static_cast<std::size_t>(level.rank % by_model)];
  }
  return whole;
}

void expect_close(const Tensor& found, const Tensor& expected, const std::string& what) {
  if (at::allclose(found, expected, 1e-12, 1e-12)) return;
  throw std::runtime_error(lockstep::str(what, " is ", found, ", not ", expected));
}

}  // namespace

void check_tensor_parallel_mlp() {
  const Tensor x = numbers({4, 3}, 0.7);
  const Layers layers{numbers({3, 8}, 0.9), numbers({8, 2}, 1.3)};
  const auto serial = [&](const Layers& whole) {
    const Tensor y = at::matmul(at::matmul(x, whole.first).tanh(), whole.second);
    return (y * y).mean();
  };

  // A replica has half of the batch, and half of the hidden units.
  const auto loss = [](const Layers& own, const Tensor& batch) {
    const Tensor hidden = at::matmul(batch, own.first).tanh();
    const Tensor y = psum(at::matmul(hidden, own.second), "model");
    return pmean((y * y).mean(), "data");
  };
  const auto step = shard_map(
      [&](const Tensor& first, const Tensor& second, const Tensor& batch) {
        const auto [value, gradients] = value_and_grad(loss)(Layers{first, second}, batch);
        return std::tuple(value, gradients.first, gradients.second);
      },
      mesh(), {P(none, "model"), P("model"), P("data")}, {P(), P(none, "model"), P("model")},
      {.check_vma = true});

  const auto [expected, whole] = value_and_grad(serial)(layers);
  const Tensor first = own_part(layers.first, -1, 1);
  const Tensor second = own_part(layers.second, -1, 0);
  const Tensor batch = own_part(x, 0, -1);
  const auto [value, of_first, of_second] = step(first, second, batch);
  expect_close(value, expected, "the loss");
  expect_close(of_first, own_part(whole.first, -1, 1), "the gradient of the first layer");
  expect_close(of_second, own_part(whole.second, -1, 0), "the gradient of the second layer");

  // The gradients through the map are the same.
  const auto through = shard_map(
      [&](const Tensor& a, const Tensor& b, const Tensor& c) {
        return loss(Layers{a, b}, c);
      },
      mesh(), {P(none, "model"), P("model"), P("data")}, P(), {.check_vma = true});
  const Layers outside = grad([&](const Layers& own) {
    return through(own.first, own.second, batch);
  })(Layers{first, second});
  expect_close(outside.first, own_part(whole.first, -1, 1), "the first layer's, through the map,");
  expect_close(outside.second, own_part(whole.second, -1, 0), "the second's, through the map,");
}

void check_pipeline() {
  constexpr std::int64_t kMicrobatches = 3;
  constexpr std::int64_t kStages = 2;
  const Tensor x = numbers({2 * kMicrobatches, 2, 4}, 0.7);  // microbatches, samples, features
  const Tensor stages = numbers({kStages, 4, 4}, 0.9);
  const auto serial = [&](const Tensor& whole) {
    const Tensor y = at::matmul(at::matmul(x, whole[0]).tanh(), whole[1]).tanh();
    return (y * y).mean();
  };

  // Stage s of the model axis has matrix s. In every tick a stage takes the last result of the one
  // before it, the first stage the next microbatch. The last stage has the pipeline's results.
  const auto loss = [](const Tensor& own, const Tensor& microbatches) {
    const Tensor stage = axis_index_tensor("model");
    Tensor carried = at::zeros_like(microbatches[0]);
    Tensor total = at::zeros_like(microbatches[0].mean());
    for (std::int64_t tick = 0; tick < kMicrobatches + kStages - 1; ++tick) {
      const Tensor next = microbatches[std::min(tick, kMicrobatches - 1)];
      const Tensor made = at::matmul(at::where(stage == 0, next, carried), own[0]).tanh();
      if (tick >= kStages - 1) {
        const Tensor mean = (made * made).mean();
        total = total + at::where(stage == kStages - 1, mean, at::zeros_like(mean));
      }
      carried = ppermute(made, "model", {{0, 1}});
    }
    return pmean(psum(total, "model") / kMicrobatches, "data");
  };
  const auto step =
      shard_map([&](const Tensor& own,
                    const Tensor& microbatches) { return value_and_grad(loss)(own, microbatches); },
                mesh(), {P("model"), P("data")}, {P(), P("model")}, {.check_vma = true});

  const auto [expected, whole] = value_and_grad(serial)(stages);
  const Tensor own = own_part(stages, -1, 0);
  const Tensor microbatches = own_part(x, 0, -1);
  const auto [value, gradient] = step(own, microbatches);
  expect_close(value, expected, "the pipeline's loss");
  expect_close(gradient, own_part(whole, -1, 0), "the gradient of the stages");
  const auto through = shard_map(loss, mesh(), {P("model"), P("data")}, P(), {.check_vma = true});
  const Tensor outside = grad([&](const Tensor& at) { return through(at, microbatches); })(own);
  expect_close(outside, own_part(whole, -1, 0), "the stages', through the map,");
}

}  // namespace lockstep::testing
