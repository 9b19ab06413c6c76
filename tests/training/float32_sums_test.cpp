#include "framework/training/float32_sums.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/version.h>

#include "framework/base/text.h"
#include "framework/training/autocast.h"
#include "framework/training/safe_convolutions.h"
#include "tests/catch.h"
#include "tests/support/settings.h"

using namespace lockstep;
using lockstep::testing::seed;

namespace {

using Tensors = std::vector<at::Tensor>;

struct SumCase {
  std::string name;
  std::function<at::Tensor(const Tensors&)> compute;
  Tensors inputs;  // of which floating ones have gradients
};

// Positive, so that no sum is small beside its terms.
at::Tensor positive(at::IntArrayRef sizes) {
  return at::rand(sizes, at::kFloat) / 2 + 0.75;
}

// The result, then the gradients of the inputs where each number of the result has one of a row of
// gradients, in the result's type.
Tensors computed(const SumCase& c, at::ScalarType type) {
  Tensors inputs;
  Tensors leaves;
  for (const at::Tensor& input : c.inputs) {
    inputs.push_back(input.is_floating_point() ? input.to(type).detach() : input);
    if (input.is_floating_point()) leaves.push_back(inputs.back().requires_grad_());
  }
  const at::Tensor result = c.compute(inputs);
  const at::Tensor gradient =
      at::arange(result.numel()).remainder(7).add(8).div(8).view(result.sizes());
  Tensors all = torch::autograd::grad({result}, leaves, {gradient.to(result.scalar_type())});
  all.insert(all.begin(), result.detach());
  return all;
}

// By how many roundings a half's numbers differ from float64's on the same inputs, at most: of each
// number, or of a typical one where that is larger.
double roundings(const SumCase& c, at::ScalarType half) {
  SumCase rounded = c;
  for (at::Tensor& input : rounded.inputs) {
    if (input.is_floating_point()) input = input.to(half);
  }
  const Tensors found = computed(rounded, half);
  const Tensors expected = computed(rounded, at::kDouble);
  const double unit = half == at::kBFloat16 ? 0x1p-8 : 0x1p-11;
  double most = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const at::Tensor scale =
        expected[i].abs().maximum(expected[i].square().mean().sqrt()).clamp_min(1e-30);
    const double error =
        ((found[i].to(at::kDouble) - expected[i]).abs() / scale).max().item<double>() / unit;
    if (!(error <= most)) most = error;  // NaN stays
  }
  return most;
}

void check(const std::vector<SumCase>& cases, at::ScalarType half = at::kBFloat16) {
  training::keep_convolutions_safe();
  const int threads = at::get_num_threads();
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    for (const SumCase& c : cases) {
      INFO(c.name << ", " << count << " threads, seed " << seed());
      CHECK(roundings(c, half) <= 2);
    }
  }
  at::set_num_threads(threads);
}

SumCase linear(std::int64_t rows, std::int64_t in, std::int64_t out) {
  return {str("linear ", rows, "x", in, " to ", out),
          [](const Tensors& x) { return at::linear(x[0], x[1], x[2]); },
          {positive({rows, in}), positive({out, in}), positive({out})}};
}

SumCase convolution(at::IntArrayRef images, at::IntArrayRef weight, std::int64_t stride,
                    std::int64_t padding) {
  return {str("convolution by ", weight[0], "x", weight[1], "x", weight[2], ", stride ", stride),
          [=](const Tensors& x) { return at::conv2d(x[0], x[1], x[2], stride, padding); },
          {positive(images).contiguous(at::MemoryFormat::ChannelsLast), positive(weight),
           positive({weight[0]})}};
}

// Scores, softmax and means as they are, operator by operator: each has the results of the one
// before, rounded.
std::vector<SumCase> attention(std::int64_t heads, std::int64_t positions, std::int64_t width) {
  const at::Tensor q = positive({heads, positions, width});
  const at::Tensor shares = at::softmax(at::randn({heads, positions, positions}), -1);
  std::vector<SumCase> cases{
      {"scores",
       [](const Tensors& x) { return at::baddbmm(x[0], x[1], x[2].transpose(1, 2)); },
       {positive({heads, positions, positions}), q, positive(q.sizes())}},
      {"means of values", [](const Tensors& x) { return at::bmm(x[0], x[1]); }, {shares, q}}};
#if TORCH_VERSION_MAJOR >= 2
  for (const bool is_causal : {false, true}) {
    cases.push_back({"attention",
                     [=](const Tensors& x) {
                       return at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0, is_causal);
                     },
                     {at::randn(q.sizes()), at::randn(q.sizes()), at::randn(q.sizes())}});
  }
#endif
  return cases;
}

// Where 4,096 places take from few.
std::vector<SumCase> repeated(std::int64_t from, std::int64_t width) {
  const at::Tensor places = at::randint(from, {4096}, at::kLong);
  const at::Tensor wide = places.unsqueeze(1).expand({4096, width});
  const at::Tensor table = positive({from, width});
  const at::Tensor added = positive({4096, width});
  return {{"embedding", [=](const Tensors& x) { return at::embedding(x[0], places); }, {table}},
          {"index_select", [=](const Tensors& x) { return x[0].index_select(0, places); }, {table}},
          {"index", [=](const Tensors& x) { return x[0].index({places}); }, {table}},
          {"gather", [=](const Tensors& x) { return x[0].gather(0, wide); }, {table}},
          {"take", [=](const Tensors& x) { return x[0].take(places); }, {table}},
          {"index_add",
           [=](const Tensors& x) { return x[0].index_add(0, places, x[1]); },
           {table, added}},
          {"scatter_add",
           [=](const Tensors& x) { return x[0].scatter_add(0, wide, x[1]); },
           {table, added}},
          {"index_put",
           [=](const Tensors& x) { return x[0].index_put({places}, x[1], true); },
           {table, added}}};
}

SumCase norm(std::int64_t rows, std::int64_t width) {
  return {str("layer_norm ", rows, "x", width),
          [=](const Tensors& x) { return at::layer_norm(x[0], {width}, x[1], x[2]); },
          {at::randn({rows, width}), positive({width}), positive({width})}};
}

}  // namespace

TEST_CASE("half sums of a model's shapes are float32's, rounded once") {
  at::manual_seed(seed());
  std::vector<SumCase> cases{linear(512, 8, 1),
                             linear(64, 784, 128),
                             linear(64, 128, 10),
                             linear(300, 16, 10),
                             linear(512, 1, 8),
                             linear(1, 100, 32),
                             norm(4096, 8),
                             norm(512, 64),
                             norm(64, 512),
                             convolution({4, 1, 28, 28}, {32, 1, 3, 3}, 1, 0),
                             convolution({4, 9, 13, 13}, {32, 9, 1, 1}, 1, 0),
                             convolution({4, 32, 13, 13}, {64, 32, 3, 3}, 1, 0),
                             convolution({8, 16, 16, 16}, {32, 16, 3, 3}, 2, 1),
                             convolution({8, 16, 16, 16}, {32, 16, 1, 1}, 2, 0),
                             convolution({512, 3, 1, 1}, {5, 3, 1, 1}, 1, 0)};
  for (const std::int64_t positions : {16, 64}) {
    for (const SumCase& c : attention(4, positions, 16)) cases.push_back(c);
    for (const SumCase& c : attention(2, positions, 3)) cases.push_back(c);
  }
  for (const std::int64_t from : {1, 10}) {
    for (const SumCase& c : repeated(from, 8)) cases.push_back(c);
  }
  const at::Tensor classes = at::randint(10, {4096}, at::kLong);
  cases.insert(
      cases.end(),
      {{"cross entropy",
        [=](const Tensors& x) { return at::cross_entropy_loss(x[0], classes); },
        {at::randn({4096, 10})}},
       {"group_norm",
        [](const Tensors& x) { return at::group_norm(x[0], 2, x[1], x[2]); },
        {at::randn({512, 8, 5}), positive({8}), positive({8})}},
       {"batch_norm",
        [](const Tensors& x) {
          return at::batch_norm(x[0], x[1], x[2], {}, {}, true, 0.1, 1e-5, false);
        },
        {at::randn({512, 8, 5}), positive({8}), positive({8})}},
       {"max_pool2d",
        [](const Tensors& x) { return at::max_pool2d(x[0], 9, 1); },
        {at::randperm(1 << 10).view({4, 1, 16, 16}).remainder(256).to(at::kFloat)}},
       {"avg_pool2d",
        [](const Tensors& x) { return at::avg_pool2d(x[0], 9, 1); },
        {positive({4, 2, 32, 32})}},
       {"upsample",
        [](const Tensors& x) {
          return at::upsample_bilinear2d(x[0], {64, 64}, false);
        },
        {positive({4, 3, 2, 2})}},
       {"bias", [](const Tensors& x) { return x[0] + x[1]; }, {positive({4096, 8}), positive({8})}},
       {"mean", [](const Tensors& x) { return x[0].mean(); }, {positive({4096, 8})}},
       {"norm", [](const Tensors& x) { return x[0].norm(2, {0}); }, {positive({4096, 8})}}});
  check(cases);
}

TEST_CASE("half sums of any shape and layout are float32's, rounded once") {
  std::mt19937_64 random(seed());
  at::manual_seed(seed());
  const auto size = [&] {
    return static_cast<std::int64_t>(std::exp2(std::uniform_real_distribution(0.0, 9.5)(random)));
  };
  // As it lies, transposed, or every second number of a row.
  const auto factor = [&](std::int64_t rows, std::int64_t columns) {
    const auto way = random() % 3;
    return std::pair(way, way == 1 ? positive({columns, rows}) : positive({rows, columns * 2}));
  };
  const auto laid = [](const at::Tensor& tensor, std::uint64_t way) {
    if (way == 1) return tensor.t();
    return way == 0 ? tensor.narrow(1, 0, tensor.size(1) / 2) : tensor.slice(1, 0, {}, 2);
  };
  std::vector<SumCase> cases;
  for (int i = 0; i < 20; ++i) {
    const std::int64_t rows = size(), inner = size(), columns = size();
    const auto [a_way, a] = factor(rows, inner);
    const auto [b_way, b] = factor(inner, columns);
    const auto product = [=, a_way = a_way, b_way = b_way](const Tensors& x) {
      return laid(x[0], a_way).matmul(laid(x[1], b_way));
    };
    cases.push_back({str("product ", rows, "x", inner, "x", columns), product, {a, b}});
    cases.push_back({str("vector ", rows, "x", inner),
                     [=, way = a_way](const Tensors& x) { return laid(x[0], way).mv(x[1]); },
                     {a, positive({inner})}});
    cases.push_back({str("dot ", inner * 8),
                     [](const Tensors& x) { return x[0].dot(x[1]); },
                     {positive({inner * 8}), positive({inner * 8})}});
    cases.push_back(norm(rows * 8, columns + 7));
  }
  check(cases);
}

TEST_CASE("half sums are float32's where oneDNN computes nothing, and in float16") {
  at::manual_seed(seed());
  std::vector<SumCase> cases{linear(64, 300, 64), norm(4096, 8)};
  for (const SumCase& c : repeated(1, 8)) cases.push_back(c);
  check(cases, at::kHalf);
  cases.push_back(convolution({4, 32, 13, 13}, {64, 32, 3, 3}, 1, 0));
  cases.push_back(convolution({512, 3, 1, 1}, {5, 3, 1, 1}, 1, 0));
  at::globalContext().setUserEnabledMkldnn(false);
  check(cases);
  at::globalContext().setUserEnabledMkldnn(true);
}

TEST_CASE("a linear model's gradient has the same norm in bfloat16 as in float32") {
  training::keep_convolutions_safe();
  for (const std::int64_t batch : {128, 256, 512}) {
    at::Tensor weight = at::zeros({1, 8}).requires_grad_();
    at::Tensor bias = at::zeros({1}).requires_grad_();
    at::Tensor loss;
    {
      const AutocastScope scope(at::kBFloat16);
      loss =
          at::mse_loss(at::linear(at::ones({batch, 8}), weight, bias), at::full({batch, 1}, 3.0));
    }
    loss.backward();
    CHECK(at::hypot(weight.grad().norm(), bias.grad().norm()).item<double>() == 18);
  }
}

TEST_CASE("types and places of results are as LibTorch has them") {
  training::keep_convolutions_safe();
  const at::Tensor table = at::zeros({2, 3}, at::kBFloat16);
  at::Tensor added = table.clone();
  at::Tensor& same =
      added.index_add_(0, at::zeros({300}, at::kLong), at::ones({300, 3}, at::kBFloat16));
  CHECK(same.is_same(added));
  CHECK(added.sum().item<double>() == 900);
  CHECK(added.scalar_type() == at::kBFloat16);

  const at::Tensor values = at::randn({40, 8}).to(at::kBFloat16).requires_grad_();
  const at::Tensor weight = at::ones({8}).requires_grad_();  // float32, as autocast leaves it
  const at::Tensor bias = at::zeros({8}).requires_grad_();
  const at::Tensor normal = at::layer_norm(values, {8}, weight, bias);
  CHECK(normal.scalar_type() == at::kBFloat16);
  normal.backward(at::ones_like(normal));
  CHECK(values.grad().scalar_type() == at::kBFloat16);
  CHECK(weight.grad().scalar_type() == at::kFloat);
  CHECK(bias.grad().eq(40).all().item<bool>());

  at::Tensor mean = at::zeros({8}, at::kBFloat16), var = at::ones({8}, at::kBFloat16);
  at::batch_norm(at::ones({40, 8}, at::kBFloat16), {}, {}, mean, var, true, 0.5, 1e-5, false);
  CHECK(mean.eq(0.5).all().item<bool>());

  CHECK_THROWS_AS(at::mm(table, at::ones({3, 2})), c10::Error);  // of two types
  CHECK(at::mm(at::ones({2, 3}), at::ones({3, 2})).scalar_type() == at::kFloat);
}
