#include "framework/data/synthetic.h"

#include <cmath>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linalg_solve.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/data/same_batches.h"
#include "tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::message_of;
using testing::whole;
using SyntheticTask = SyntheticOptions::Task;

// float64 (samples, features + 1): the inputs and a one.
at::Tensor design(const Batch& batch) {
  const at::Tensor inputs = batch.inputs.to(at::kDouble);
  return at::cat({inputs, at::ones({inputs.size(0), 1}, at::kDouble)}, 1);
}

// The linear model that fits best, (features + 1, outputs).
at::Tensor fitted_model(const Batch& batch) {
  const at::Tensor x = design(batch);
  return at::linalg_solve(at::matmul(x.t(), x), at::matmul(x.t(), batch.targets.to(at::kDouble)));
}

double squared_error(const at::Tensor& model, const Batch& batch) {
  return (at::matmul(design(batch), model) - batch.targets).square().mean().item<double>();
}

}  // namespace

TEST_CASE("the best linear model of made values has the noise's variance as its error") {
  const SyntheticOptions options{
      .samples = 2000, .test_samples = 2000, .features = 6, .outputs = 3, .noise = 0.5};
  const DataSets sets = make_synthetic(options, 11);
  CHECK(sets.train->type() == value_sample({6}, 3));
  const Batch train = whole(*sets.train);
  const Batch test = whole(*sets.test);
  const at::Tensor model = fitted_model(train);
  // 6000 squares of noise: their mean deviates by sqrt(2 / 6000), which is 1.8 %.
  const double lost = 7.0 / 2000;  // degrees of freedom, a sample
  CHECK(squared_error(model, train) == Approx(0.25 * (1 - lost)).epsilon(0.07));
  CHECK(squared_error(model, test) == Approx(0.25 * (1 + lost)).epsilon(0.07));
  // Inputs are N(0, 1), and no sample of one set is in the other.
  CHECK(std::abs(train.inputs.mean().item<double>()) < 4 / std::sqrt(12000.0));
  CHECK(train.inputs.square().mean().item<double>() == Approx(1).margin(0.05));
  CHECK_FALSE(at::equal(train.inputs, test.inputs));
}

TEST_CASE("without noise made values are a linear function of their inputs, of the seed alone") {
  const SyntheticOptions options{.samples = 50, .features = 4, .outputs = 2, .noise = 0};
  const Batch train = whole(*make_synthetic(options, 1).train);
  const at::Tensor model = fitted_model(train);
  CHECK(squared_error(model, train) < 1e-12);
  CHECK(squared_error(model, whole(*make_synthetic(options, 1).test)) < 1e-12);
  CHECK(squared_error(model, whole(*make_synthetic(options, 2).test)) > 0.01);
}

TEST_CASE("made classes are clouds around centres, all equally likely") {
  SyntheticOptions options{.task = SyntheticTask::classification,
                           .samples = 4000,
                           .features = 8,
                           .classes = 4,
                           .noise = 0};
  const DataSets centres = make_synthetic(options, 5);
  CHECK(centres.train->type() == class_sample({8}, 4));
  const Batch exact = whole(*centres.train);
  options.noise = 0.5;
  const DataSets sets = make_synthetic(options, 5);
  const Batch noisy = whole(*sets.train);
  CHECK(at::equal(exact.targets, noisy.targets));
  const at::Tensor noise = (noisy.inputs - exact.inputs).to(at::kDouble);
  CHECK(noise.square().mean().item<double>() == Approx(0.25).epsilon(0.03));
  for (std::int64_t label = 0; label < 4; ++label) {
    const at::Tensor chosen = exact.targets.eq(label);
    CHECK(chosen.sum().item<std::int64_t>() == Approx(1000).margin(120));
    const at::Tensor points = at::index_select(exact.inputs, 0, at::nonzero(chosen).flatten());
    CHECK(at::equal(points, points[0].expand_as(points)));
  }
  testing::check_same_batches(
      *make_synthetic(
           {.task = SyntheticTask::classification, .samples = 9, .validation_samples = 2}, 5)
           .train);
}

TEST_CASE("made sets have the sizes that are asked for, and cost no memory for them") {
  const DataSets sets =
      make_synthetic({.samples = 1'000'000'000, .validation_samples = 3, .test_samples = 0}, 0);
  CHECK(sets.train->size() == 1'000'000'000);
  CHECK(sets.train->batch(std::vector<std::int64_t>{999'999'999}).inputs.size(0) == 1);
  CHECK(sets.validation->size() == 3);
  CHECK(sets.test == nullptr);
  testing::check_same_batches(*sets.validation);
  CHECK(make_synthetic({}, 0).validation == nullptr);
}

TEST_CASE("sizes that make no set are refused") {
  const auto error = [](const SyntheticOptions& options) {
    return message_of<ValueError>([&] { (void)make_synthetic(options, 0); });
  };
  CHECK(error({.samples = 0}) == "synthetic: samples must be at least 1, not 0");
  CHECK(error({.classes = 1}) == "synthetic: classes must be from 2 to 1000, not 1");
  CHECK(error({.test_samples = -1}) == "synthetic: test_samples must be at least 0, not -1");
  CHECK(error({.noise = -1}) == "synthetic: noise must be at least 0, not -1");
}

}  // namespace lockstep
