#include "trainers/run/operation_count.h"

#include <cstdint>

#include <ATen/Functions.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/version.h>

#include "framework/training/process_generator.h"
#include "tests/catch.h"

namespace lockstep {
namespace {

template <typename Work>
std::int64_t count(Work work) {
  const OperationCount operations;
  (void)work();
  return operations.multiply_adds();
}

at::Tensor ones(const std::vector<std::int64_t>& sizes) {
  return at::ones(sizes);
}

}  // namespace

TEST_CASE("products of matrices and vectors count once, whoever calls them") {
  CHECK(count([] { return at::mm(ones({2, 3}), ones({3, 5})); }) == 2 * 3 * 5);
  CHECK(count([] { return at::addmm(ones({5}), ones({2, 3}), ones({3, 5})); }) == 2 * 3 * 5);
  CHECK(count([] { return at::bmm(ones({7, 2, 3}), ones({7, 3, 5})); }) == 7 * 2 * 3 * 5);
  CHECK(count([] {
          return at::baddbmm(ones({1}), ones({7, 2, 3}), ones({7, 3, 5}));
        }) == 7 * 2 * 3 * 5);
  CHECK(count([] { return at::matmul(ones({4, 7, 2, 3}), ones({3, 5})); }) == 4 * 7 * 2 * 3 * 5);
  CHECK(count([] { return at::matmul(ones({2, 3}), ones({3})); }) == 2 * 3);
  CHECK(count([] { return at::dot(ones({3}), ones({3})); }) == 3);
  CHECK(count([] {
          return at::linear(ones({4, 2, 3}), ones({5, 3}), ones({5}));
        }) == 4 * 2 * 3 * 5);
  CHECK(count([] {
          return at::einsum("bij,bjk->bik", {ones({7, 2, 3}), ones({7, 3, 5})});
        }) == 7 * 2 * 3 * 5);
  CHECK(count([] { return ones({9}) * 2 + at::softmax(ones({9}), 0); }) == 0);
  CHECK(count([] { return at::mm(ones({0, 3}), ones({3, 5})); }) == 0);
}

TEST_CASE("convolutions count a kernel an output, transposed ones a kernel an input") {
  const at::Tensor images = ones({2, 4, 9, 7});
  CHECK(count([&] {
          return at::conv2d(images, ones({6, 4, 3, 3}), {}, 1, 1);
        }) == (2 * 6 * 9 * 7) * (4 * 3 * 3));
  CHECK(count([&] {
          return at::conv2d(images, ones({6, 4, 3, 3}), ones({6}), 2, 2);
        }) == (2 * 6 * 6 * 5) * (4 * 3 * 3));
  CHECK(count([&] {
          return at::conv2d(images, ones({6, 2, 3, 3}), {}, 1, 1, 1, 2);
        }) == (2 * 6 * 9 * 7) * (2 * 3 * 3));
  CHECK(count([&] { return at::conv2d(images, ones({6, 4, 1, 1})); }) == (2 * 6 * 9 * 7) * 4);
  CHECK(count([] { return at::conv1d(ones({2, 4, 9}), ones({6, 4, 3})); }) == (2 * 6 * 7) * 4 * 3);
  CHECK(count([&] {
          return at::conv_transpose2d(images, ones({4, 6, 3, 3}), {}, 2);
        }) == (2 * 4 * 9 * 7) * (6 * 3 * 3));
}

TEST_CASE("LibTorch's own layers are counted") {
  const std::int64_t heads = 2, width = 8, positions = 5, samples = 3;
  const auto [lstm, attention] = seeded(1, [&] {
    return std::pair(torch::nn::LSTM(torch::nn::LSTMOptions(4, 6)),
                     torch::nn::MultiheadAttention(width, heads));
  });
  const c10::AutoGradMode no_grad(false);
  CHECK(count([&, its = lstm]() mutable {
          (void)its->forward(ones({5, 3, 4}));
        }) == 5 * 3 * (4 * 6) * (4 + 6));
  const at::Tensor x = ones({positions, samples, width});
  // Four projections; products of queries with keys, and of what they give with values.
  CHECK(count([&, its = attention]() mutable { (void)its->forward(x, x, x); }) ==
        4 * positions * samples * width * width + 2 * samples * positions * positions * width);
#if TORCH_VERSION_MAJOR >= 2
  const at::Tensor q = ones({samples, heads, positions, 4});
  CHECK(count([&] {
          (void)at::scaled_dot_product_attention(q, q, ones({samples, heads, positions, 6}), {},
                                                 /*dropout_p=*/0.0, /*is_causal=*/true);
        }) == samples * heads * positions * positions * (4 + 6));
#endif
}

TEST_CASE("a count sees what runs while it lives") {
  const auto work = [] { (void)at::mm(ones({2, 3}), ones({3, 5})); };
  work();
  CHECK(count([] {}) == 0);
  CHECK(count([&] {
          work();
          work();
        }) == 60);
  // An operator that throws leaves the count as it was.
  CHECK(count([&] {
          CHECK_THROWS((void)at::mm(ones({2, 3}), ones({4, 5})));
          work();
        }) >= 30);
}

}  // namespace lockstep
