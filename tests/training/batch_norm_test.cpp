#include "framework/training/batch_norm.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "framework/base/errors.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/axis_index.h"
#include "framework/maps/pmap.h"
#include "framework/maps/vmap.h"
#include "framework/training/data_parallel.h"
#include "framework/training/uncounted_samples.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/training/placements.h"
#include "tests/training/random_models.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr std::int64_t kChannels = 3;
using Sizes = std::vector<std::int64_t>;

// Values between -1 and 1 around `mean`, that no permutation leaves alike.
at::Tensor values(const Sizes& sizes, double first, double mean = 0,
                  at::ScalarType type = at::kDouble) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return ((at::arange(count, at::kDouble) * 0.7 + first).sin() + mean).view(sizes).to(type);
}

// Rows `begin` to `end` of a batch belong to a replica.
struct Part {
  std::int64_t begin;
  std::int64_t end;
  [[nodiscard]] at::Tensor of(const at::Tensor& batch) const {
    return batch.narrow(0, begin, end - begin);
  }
};

// The batch's parts by replica, very unequal.
std::vector<Part> parts_of(std::int64_t rows, std::int64_t replicas) {
  std::vector<Part> parts;
  std::int64_t begin = 0;
  for (std::int64_t r = 0; r < replicas; ++r) {
    const std::int64_t end = r + 1 == replicas ? rows : std::min(rows, begin + r * r);
    parts.push_back({begin, end});
    begin = end;
  }
  return parts;
}

BatchNormOptions over_i(bool affine = true, std::optional<double> momentum = 0.1) {
  return {.channels = kChannels, .momentum = momentum, .affine = affine, .axis_name = "i"};
}

void set_weights(const BatchNorm& norm) {
  if (!norm->weight.defined()) return;
  norm->weight.set_data(values({kChannels}, 1));
  norm->bias.set_data(values({kChannels}, 2));
}

double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm().clamp_min(1e-30)).item<double>();
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected, const std::string& what,
                  double tolerance = 1e-6) {
  const double difference = relative_difference(actual.to(at::kDouble), expected.to(at::kDouble));
  expect(difference < tolerance, lockstep::str(what, " differ by ", difference));
}

}  // namespace

TEST_CASE("BatchNorm over replicas is LibTorch's on the whole batch, however it is cut") {
  const std::vector<Sizes> shapes{
      {11, kChannels}, {11, kChannels, 5}, {11, kChannels, 2, 3}, {11, kChannels, 2, 3, 2}};
  for (const Sizes& sizes : shapes) {
    for (const bool affine : {true, false}) {
      const auto momentum = affine ? std::optional(0.1) : std::nullopt;
      for (const std::int64_t replicas : {1, 2, 4}) {
        INFO(sizes.size() << " dimensions, affine " << affine << ", " << replicas << " replicas");
        pmap(
            [&] {
              const Part own =
                  parts_of(sizes[0], replicas)[static_cast<std::size_t>(axis_index("i"))];
              BatchNorm norm(over_i(affine, momentum));
              set_weights(norm);
              at::Tensor weight = affine ? norm->weight.detach().clone() : at::Tensor();
              at::Tensor bias = affine ? norm->bias.detach().clone() : at::Tensor();
              if (affine) weight.set_requires_grad(true), bias.set_requires_grad(true);
              const at::Tensor mean = at::zeros({kChannels}, at::kDouble);
              const at::Tensor var = at::ones({kChannels}, at::kDouble);
              for (int step = 1; step <= 2; ++step) {
                const at::Tensor batch = values(sizes, step, 5);
                const at::Tensor slopes = values(sizes, 20 + step);
                const at::Tensor whole = batch.clone().set_requires_grad(true);
                const at::Tensor expected =
                    at::batch_norm(whole, weight, bias, mean, var, /*training=*/true,
                                   momentum.value_or(1.0 / step), 1e-5, false);
                (expected * slopes).sum().backward();

                const at::Tensor input = own.of(batch).clone().set_requires_grad(true);
                const at::Tensor output = norm(input);
                expect(output.sizes() == input.sizes(), "other sizes");
                expect_close(output, own.of(expected), "outputs");
                (output * own.of(slopes)).sum().backward();
                expect_close(input.grad(), own.of(whole.grad()), "gradients of inputs");
                expect_close(norm->running_mean, mean, "running means");
                expect_close(norm->running_var, var, "running variances");
                expect(norm->num_batches_tracked.item<std::int64_t>() == step, "another number");
                const at::Tensor all = all_gather(norm->running_var, "i");
                expect(all.eq(all[0]).all().item<bool>(), "replicas have other bits");
              }
              if (!affine) return;
              expect_close(psum(norm->weight.grad(), "i"), weight.grad(), "weights' gradients");
              expect_close(psum(norm->bias.grad(), "i"), bias.grad(), "biases' gradients");
            },
            {.axis_size = replicas})();
      }
    }
  }
}

TEST_CASE("BatchNorm's gradient is that of finite differences") {
  const Sizes sizes{5, kChannels, 2};
  const at::Tensor batch = values(sizes, 1, 2);
  const auto loss_and_gradient = [&](const at::Tensor& at_batch) {
    return pmap(
        [&](const at::Tensor& unused) {
          const Part own = parts_of(5, 3)[static_cast<std::size_t>(axis_index("i"))];
          BatchNorm norm(over_i());
          set_weights(norm);
          const at::Tensor input = own.of(at_batch).clone().set_requires_grad(true);
          const at::Tensor loss = (norm(input).pow(3) * own.of(values(sizes, 9))).sum();
          loss.backward();
          const at::Tensor gradients = at::zeros(sizes, at::kDouble);
          own.of(gradients).copy_(input.grad());
          return psum(at::cat({loss.detach().view({1}), gradients.flatten()}), "i") + unused * 0;
        },
        {.axis_size = 3})(at::zeros({3}, at::kDouble))[0];
  };
  const at::Tensor gradients = loss_and_gradient(batch).narrow(0, 1, batch.numel());
  for (std::int64_t i = 0; i < batch.numel(); i += 4) {
    const auto loss_at = [&](double step) {
      const at::Tensor moved = batch.clone();
      moved.flatten()[i] += step;
      return loss_and_gradient(moved)[0].item<double>();
    };
    const double difference = (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5;
    CHECK(std::abs(difference - gradients[i].item<double>()) < 1e-6);
  }
}

TEST_CASE("BatchNorm keeps channels_last, and its variance where the mean is large") {
  pmap(
      [] {
        const std::int64_t replica = axis_index("i");
        BatchNorm norm(over_i());
        const at::Tensor input =
            values({2 + replica, kChannels, 4, 4}, static_cast<double>(replica), 0, at::kFloat)
                .contiguous(at::MemoryFormat::ChannelsLast)
                .set_requires_grad(true);
        const at::Tensor output = norm(input);
        expect(output.is_contiguous(at::MemoryFormat::ChannelsLast), "not channels_last");
        output.pow(3).sum().backward();
        expect(input.grad().is_contiguous(at::MemoryFormat::ChannelsLast), "not channels_last");
        BatchNorm same(over_i());
        const at::Tensor plain = input.detach().contiguous().set_requires_grad(true);
        const at::Tensor plain_output = same(plain);
        plain_output.pow(3).sum().backward();
        expect_close(output, plain_output, "outputs", 1e-5);
        expect_close(input.grad(), plain.grad(), "gradients", 1e-4);

        BatchNorm far(BatchNormOptions{.channels = kChannels, .momentum = 1.0, .axis_name = "i"});
        // The replicas' means differ, too.
        const at::Tensor shifted =
            values({40, kChannels}, 1, 1e4 + static_cast<double>(replica), at::kFloat);
        (void)far(shifted);
        const at::Tensor all = all_gather(shifted, "i", {.tiled = true}).to(at::kDouble);
        expect_close(far->running_var, all.var(0, true), "variances", 1e-5);
      },
      {.axis_size = 3})();
}

TEST_CASE("BatchNorm's running statistics stay float32 where inputs are of half types") {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    pmap(
        [&] {
          BatchNorm norm(over_i());
          norm->running_mean.fill_(0.1);
          norm->to(type);
          expect(norm->weight.scalar_type() == type, "the weight has another type");
          expect(norm->running_mean.equal(at::full({kChannels}, 0.1)), "they were rounded");
          const at::Tensor input =
              values({6, kChannels}, static_cast<double>(axis_index("i")), 1, type)
                  .set_requires_grad(true);
          const at::Tensor output = norm(input);
          output.sum().backward();
          expect(output.scalar_type() == type && input.grad().scalar_type() == type &&
                     norm->weight.grad().scalar_type() == type,
                 "another type");
          BatchNorm exact(over_i());
          exact->running_mean.fill_(0.1);
          expect_close(output, exact(input.detach().to(at::kFloat)), "outputs", 1e-2);
          expect(norm->running_mean.equal(exact->running_mean) &&
                     norm->running_var.equal(exact->running_var),
                 "other running statistics");
          norm->eval();
          expect(norm(input).scalar_type() == type, "another type in an evaluation");
          norm->to(at::kDouble);
          expect(norm->running_var.scalar_type() == at::kDouble, "they are not float64");
        },
        {.axis_size = 2})();
  }
}

TEST_CASE("in an evaluation BatchNorm uses its running statistics, anywhere") {
  BatchNorm norm(kChannels);
  norm->running_mean.copy_(values({kChannels}, 3));
  norm->running_var.copy_(values({kChannels}, 4, 2));
  norm->eval();
  const at::Tensor input = values({4, kChannels, 2}, 0, 0, at::kFloat).set_requires_grad(true);
  const at::Tensor expected = at::batch_norm(input, norm->weight, norm->bias, norm->running_mean,
                                             norm->running_var, false, 0.1, 1e-5, false);
  CHECK(norm(input).equal(expected));
  CHECK(norm(input).requires_grad());
  CHECK(norm->num_batches_tracked.item<std::int64_t>() == 0);
  std::stringstream text;
  text << norm << BatchNorm(over_i(false, std::nullopt));
  CHECK(text.str() ==
        "lockstep::BatchNorm(3, eps=1e-05, momentum=0.1, affine=true)"
        "lockstep::BatchNorm(3, eps=1e-05, momentum=none, affine=false, axis_name='i')");
}

TEST_CASE("BatchNorm says what it can't do") {
  CHECK_THROWS_WITH(BatchNorm(0), "BatchNorm: channels is 0; it must be above 0");
  CHECK_THROWS_WITH(BatchNorm(BatchNormOptions{.channels = 1, .eps = 0}),
                    "BatchNorm: eps is 0; it must be above 0");
  CHECK_THROWS_WITH(BatchNorm(BatchNormOptions{.channels = 1, .momentum = 2}),
                    "BatchNorm: momentum is 2; it must be in [0, 1]");
  BatchNorm norm(kChannels);
  for (const at::Tensor& input :
       {at::zeros({kChannels}), at::zeros({2, 4}), at::zeros({2, kChannels}, at::kLong),
        at::zeros({2, kChannels, 1, 1, 1, 1})}) {
    CHECK(message_of<ValueError>([&] { (void)norm(input); })
              .find("BatchNorm: the input must be floating and (N, 3), with up to three more "
                    "dimensions, not ") == 0);
  }
  CHECK(message_of<Error>([&] {
          (void)norm(at::zeros({2, kChannels}));
        }) ==
        "a lockstep::BatchNorm in training mode belongs to no trainer that lives, which says what "
        "step it is: make a ZeroTrainer or a DataParallel for a module that registers it, call "
        "eval() for an "
        "evaluation, or give it BatchNormOptions::axis_name");
  CHECK_THROWS_AS(BatchNorm(over_i())(at::zeros({2, kChannels})), NameError);
  for (const std::int64_t replicas : {1, 3}) {
    pmap(
        [] {
          BatchNorm over(over_i());
          const std::int64_t rows = axis_index("i") == 0 ? 1 : 0;
          expect_contains(
              message_of<ValueError>([&] {
                (void)over(at::zeros({rows, kChannels, 1}));
              }),
              "all replicas together have one value for each channel; in training mode there must "
              "be more. If that is what is left at an epoch's end, leave it out (train: "
              "data.drop_last: true)");
          expect(over->num_batches_tracked.item<std::int64_t>() == 0, "it was counted");
          const at::Tensor input = values({2, kChannels}, 0).set_requires_grad(true);
          const at::Tensor output = over(input);
          expect_contains(message_of<ValueError>([&] {
                            (void)torch::autograd::grad({output.sum()}, {input}, {}, {},
                                                        /*create_graph=*/true);
                          }),
                          "it has no second derivative (create_graph)");
        },
        {.axis_size = replicas})();
  }
}

TEST_CASE("BatchNorm finds its trainer's axis, and not in a map inside the replica") {
  pmap(
      [] {
        BatchNorm norm(kChannels);
        torch::nn::Sequential net(torch::nn::Linear(kChannels, kChannels), norm);
        const DataParallel parallel(*net, "i");
        const auto replica = static_cast<double>(axis_index("i"));
        const at::Tensor input = values({4, kChannels}, replica, replica, at::kFloat);
        BatchNorm same(over_i());
        expect(norm(input).equal(same(input)), "another axis");
        expect(norm->keeps_equal_over("i") && !norm->keeps_equal_over("data"), "another axis");
        expect_contains(message_of<Error>([&] {
                          (void)vmap(
                              [&](const at::Tensor& x) { return norm(x); },
                              {.axis_name = "lanes", .in_axes = {0}})(at::ones({2, 2, kChannels}));
                        }),
                        "lockstep::BatchNorm '1' runs in a map inside the replica");
      },
      {.axis_size = 2})();
}

TEST_CASE("samples that do not count leave the others' statistics alone") {
  in_every_placement(3, [] {
    const std::int64_t replica = axis_index("data");
    const BatchNormOptions options{.channels = kChannels, .axis_name = "data"};
    const bool counts = replica != 1;
    const at::Tensor input =
        values({counts ? 2 + replica : 1, kChannels}, static_cast<double>(replica), 1, at::kFloat);
    // The same without a row on replica 1.
    BatchNorm expected(options);
    const at::Tensor rows =
        input.narrow(0, 0, counts ? input.size(0) : 0).clone().set_requires_grad(true);
    const at::Tensor expected_output = expected(rows);
    expected_output.pow(3).sum().backward();

    BatchNorm norm(options);
    const at::Tensor own = input.clone().set_requires_grad(true);
    at::Tensor loss;
    {
      std::optional<UncountedSamples> uncounted;
      if (!counts) uncounted.emplace();
      const at::Tensor output = norm(own);
      expect(output.isfinite().all().item<bool>(), "outputs are not finite");
      if (counts) expect(output.equal(expected_output), "other outputs");
      loss = output.pow(3).sum() * (counts ? 1.0 : 0.0);
    }
    loss.backward();
    expect(norm->running_mean.equal(expected->running_mean) &&
               norm->running_var.equal(expected->running_var),
           "other running statistics");
    if (counts) {
      expect(own.grad().equal(rows.grad()) && norm->weight.grad().equal(expected->weight.grad()),
             "other gradients");
    } else {
      expect(own.grad().eq(0).all().item<bool>() && norm->weight.grad().eq(0).all().item<bool>() &&
                 norm->bias.grad().eq(0).all().item<bool>(),
             "gradients of samples that do not count");
    }

    // Nobody has any.
    const at::Tensor before = norm->running_mean.clone();
    const UncountedSamples uncounted;
    const at::Tensor alone = input.clone().set_requires_grad(true);
    const at::Tensor output = norm(alone);
    expect(output.isfinite().all().item<bool>(), "outputs are not finite");
    output.sum().backward();
    expect(alone.grad().eq(0).all().item<bool>(), "gradients of samples that do not count");
    expect(norm->running_mean.equal(before) && norm->num_batches_tracked.item<std::int64_t>() == 1,
           "running statistics of nothing");
  });
}

TEST_CASE("training with BatchNorm over replicas gives the same bits everywhere") {
  const Quiet quiet;
  check_training_everywhere(jointly_normed_model);
}
