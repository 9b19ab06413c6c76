#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "framework/base/errors.h"
#include "framework/optim/optimizers.h"
#include "tests/catch.h"
#include "tests/optim/slices.h"
#include "tests/support/message_of.h"
#include "tests/support/settings.h"

namespace lockstep {
namespace {

using Catch::Matchers::StartsWith;
using testing::message_of;
using testing::part_of;
using testing::random_values;
using testing::whole;

std::vector<OptimizerOptions> one_of_each() {
  OptimizerOptions centered{.name = "rmsprop"};
  centered.own.of<RMSpropOptions>("rmsprop") = {.momentum = 0.9, .centered = true};
  return {{.name = "sgd"},
          {.name = "sgd", .momentum = 0.9},
          {.name = "sgd", .momentum = 0.9, .nesterov = true},
          {.name = "sgd", .momentum = 0.9, .dampening = 0.4},
          {.name = "adam"},
          {.name = "adam", .amsgrad = true},
          {.name = "adamw"},
          {.name = "rmsprop"},
          centered,
          {.name = "adagrad"}};
}

UpdateSettings settings_of_step(std::int64_t step) {
  return {.step = step, .lr = 0.01, .weight_decay = 0.1, .gradient_scale = 0.7, .clip_value = 0.5};
}

std::vector<at::Tensor> results_of(const OptimizerSlice& slice) {
  std::vector<at::Tensor> all{slice.parameter};
  all.insert(all.end(), slice.state.begin(), slice.state.end());
  if (slice.rounded.defined()) all.push_back(slice.rounded);
  return all;
}

// Whether two slices hold the same numbers, none of which is zero or NaN here: the same bits.
bool equal(const OptimizerSlice& a, const OptimizerSlice& b) {
  const auto all_a = results_of(a);
  const auto all_b = results_of(b);
  for (std::size_t i = 0; i < all_a.size(); ++i) {
    if (!at::equal(all_a[i], all_b[i])) return false;
  }
  return true;
}

struct Dtypes {
  at::ScalarType values;
  std::optional<at::ScalarType> rounded = {};
};

// A slice of random values; the same again for the same key.
OptimizerSlice random_slice(const Optimizer& optimizer, std::int64_t count, const Dtypes& dtypes,
                            const Key& key) {
  OptimizerSlice slice = whole(optimizer, random_values(count, key.fold(0), dtypes.values),
                               random_values(count, key.fold(1), dtypes.values));
  if (dtypes.rounded) slice.rounded = at::zeros({count}, *dtypes.rounded);
  return slice;
}

OptimizerSlice one_slice(std::int64_t count) {
  return {at::ones({count}), at::ones({count}), {}, {}};
}

}  // namespace

TEST_CASE("an update has the same bits however the buffers are cut", "[optim]") {
  INFO("seed " << testing::seed());
  const Dtypes dtypes = GENERATE(Dtypes{at::kFloat}, Dtypes{at::kDouble},
                                 Dtypes{at::kFloat, at::kBFloat16}, Dtypes{at::kFloat, at::kHalf});
  std::mt19937_64 random(testing::seed());
  for (const OptimizerOptions& options : one_of_each()) {
    const auto optimizer = make_optimizer(options);
    for (const std::int64_t count : {1, 2, 15, 63, 64, 65, 1023, 1025, 4099}) {
      CAPTURE(options.name, options.momentum, options.nesterov, count);
      const Key key = Key(testing::seed()).fold(static_cast<std::uint64_t>(count));
      const OptimizerSlice at_once = random_slice(*optimizer, count, dtypes, key);
      const OptimizerSlice in_parts = random_slice(*optimizer, count, dtypes, key);
      for (std::int64_t step = 1; step <= 3; ++step) {
        optimizer->update(at_once, settings_of_step(step));
        for (std::int64_t begin = 0; begin < count;) {
          const std::int64_t longest = std::min<std::int64_t>(count - begin, 1300);
          const std::int64_t end =
              begin + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(longest)) + 1;
          optimizer->update(part_of(in_parts, begin, end), settings_of_step(step));
          begin = end;
        }
      }
      CHECK(equal(at_once, in_parts));
    }
  }
}

TEST_CASE("the rounded copy is the new parameter, rounded once", "[optim]") {
  const auto half = GENERATE(at::kBFloat16, at::kHalf);
  const auto optimizer = make_optimizer({.name = "adam"});
  const OptimizerSlice slice =
      random_slice(*optimizer, 40'000, {at::kFloat, half}, Key(testing::seed()));
  const at::Tensor before = slice.parameter.clone();
  optimizer->update(slice, settings_of_step(1));
  CHECK(at::equal(slice.rounded, slice.parameter.to(half)));
  CHECK_FALSE(at::equal(slice.parameter, before));
}

TEST_CASE("a gradient is scaled, then clipped by value, then used", "[optim]") {
  const auto optimizer = make_optimizer({});
  const at::Tensor gradient = at::tensor({4.0, -4.0, 0.5, -0.25, 1.0}, at::kDouble);
  const auto updated = [&](const UpdateSettings& settings) {
    const OptimizerSlice slice{at::zeros({5}, at::kDouble), gradient, {}, {}};
    optimizer->update(slice, settings);
    return slice.parameter;
  };
  CHECK(at::equal(updated({.lr = 1}), -gradient));
  CHECK(at::equal(updated({.lr = 1, .gradient_scale = 0.5}), gradient * -0.5));
  CHECK(at::equal(updated({.lr = 1, .gradient_scale = 0.5, .clip_value = 0.25}),
                  at::tensor({-0.25, 0.25, -0.25, 0.125, -0.25}, at::kDouble)));
  const OptimizerSlice decayed{at::ones({5}, at::kDouble), gradient, {}, {}};
  optimizer->update(decayed, {.lr = 1, .weight_decay = 2, .clip_value = 0.25});
  CHECK(at::equal(decayed.parameter, at::tensor({-1.25, -0.75, -1.25, -0.75, -1.25}, at::kDouble)));
}

TEST_CASE("what is no number stays one through clipping", "[optim]") {
  for (const OptimizerOptions& options : one_of_each()) {
    const auto optimizer = make_optimizer(options);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const OptimizerSlice slice = whole(*optimizer, at::ones({3}), at::tensor({1.0F, nan, 1.0F}));
    optimizer->update(slice, settings_of_step(1));
    CHECK(std::isnan(slice.parameter[1].item<float>()));
    CHECK(std::isfinite(slice.parameter[0].item<float>()));
    CHECK(std::isfinite(slice.parameter[2].item<float>()));
  }
}

TEST_CASE("the state has torch's names", "[optim]") {
  using Names = std::vector<std::string>;
  CHECK(make_optimizer({})->state_names() == Names{});
  CHECK(make_optimizer({.momentum = 0.9})->state_names() == Names{"momentum_buffer"});
  CHECK(make_optimizer({.name = "adam"})->state_names() == Names{"exp_avg", "exp_avg_sq"});
  CHECK(make_optimizer({.name = "adamw"})->state_tensors() == 2);
  CHECK(make_optimizer({.name = "adamw", .amsgrad = true})->state_names() ==
        Names{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"});
  CHECK(make_optimizer({.name = "rmsprop"})->state_names() == Names{"square_avg"});
  CHECK(make_optimizer({.name = "adagrad"})->state_names() == Names{"sum"});
}

TEST_CASE("an empty slice is updated", "[optim]") {
  for (const OptimizerOptions& options : one_of_each()) {
    const auto optimizer = make_optimizer(options);
    const OptimizerSlice slice = whole(*optimizer, at::empty({0}), at::empty({0}));
    CHECK_NOTHROW(optimizer->update(slice, settings_of_step(1)));
  }
}

TEST_CASE("an optimizer's name is checked", "[optim]") {
  CHECK_THAT(
      message_of<ValueError>([] { (void)make_optimizer({.name = "adan"}); }),
      StartsWith("there is no optimizer 'adan' (did you mean 'adam'?); there are sgd, adam, adamw, "
                 "rmsprop, adagrad"));
}

TEST_CASE("an optimizer's numbers obey the rules of their keys", "[optim]") {
  const auto message = [](const OptimizerOptions& options) {
    return message_of<ValueError>([&] { (void)make_optimizer(options); });
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(message({.lr = -0.1}) == "optimizer sgd: lr must be greater than 0, not -0.1");
  CHECK(message({.lr = nan}) ==
        "optimizer sgd: lr must be a finite number, greater than 0, not nan");
  CHECK(message({.weight_decay = -1}) == "optimizer sgd: weight_decay must be at least 0, not -1");
  CHECK(message({.momentum = 1}) ==
        "optimizer sgd: momentum must be at least 0 and less than 1, not 1");
  CHECK(message({.nesterov = true}) ==
        "optimizer sgd: nesterov needs optimizer.momentum greater than 0");
  CHECK(message({.dampening = 0.5}) ==
        "optimizer sgd: dampening needs optimizer.momentum greater than 0");
  CHECK(message({.momentum = 0.9, .dampening = 0.5, .nesterov = true}) ==
        "optimizer sgd: nesterov needs optimizer.dampening 0");
  CHECK(message({.name = "adam", .eps = 0}) == "optimizer adam: eps must be greater than 0, not 0");
  CHECK(message({.name = "adamw", .betas = {0.9, 1.0}}) ==
        "optimizer adamw: betas must be at least 0 and less than 1, not 1");
  CHECK(message({.groups = {{.pattern = "w"}, {.pattern = "*.bias", .weight_decay = -1}}}) ==
        "optimizer sgd: groups \"*.bias\": weight_decay must be at least 0, not -1");
  CHECK(message({.groups = {{.pattern = ""}}}) ==
        "optimizer sgd: groups \"\": pattern must be a pattern for parameters' names of 1 to 1000 "
        "bytes, not ''");
  OptimizerOptions rmsprop{.name = "rmsprop"};
  rmsprop.own.of<RMSpropOptions>("rmsprop").alpha = 1;
  CHECK(message(rmsprop) == "optimizer rmsprop: alpha must be at least 0 and less than 1, not 1");
  OptimizerOptions adagrad{.name = "adagrad"};
  adagrad.own.of<AdagradOptions>("adagrad").eps = 0;
  CHECK(message(adagrad) == "optimizer adagrad: eps must be greater than 0, not 0");
}

TEST_CASE("an optimizer of one's own needs no options", "[optim]") {
  register_optimizer(optimizer_kind("own_plain", "sgd by another name",
                                    [](const OptimizerOptions&) { return make_optimizer({}); }));
  const OptimizerSlice slice = one_slice(4);
  const at::Tensor expected = slice.parameter - 0.5 * slice.gradient;
  make_optimizer({.name = "own_plain"})->update(slice, {.step = 1, .lr = 0.5});
  CHECK(at::equal(slice.parameter, expected));
  CHECK_THROWS_WITH(make_optimizer({.name = "own_plain", .momentum = 0.9}),
                    "optimizer own_plain: momentum is not an option of it");
}

TEST_CASE("an option that the optimizer doesn't have is refused", "[optim]") {
  CHECK_THROWS_WITH(make_optimizer({.name = "adam", .momentum = 0.9}),
                    ContainsSubstring("optimizer adam: momentum is not an option of it"));
  CHECK_THROWS_WITH(make_optimizer({.betas = {0.5, 0.9}}),
                    ContainsSubstring("optimizer sgd: betas is not an option of it"));
  CHECK_THROWS_WITH(make_optimizer({.name = "rmsprop", .momentum = 0.9}),
                    ContainsSubstring("optimizer rmsprop: momentum is not an option of it"));
  OptimizerOptions other{.name = "adagrad"};
  other.own.of<RMSpropOptions>("rmsprop").centered = true;
  CHECK_THROWS_WITH(make_optimizer(other),
                    ContainsSubstring("optimizer adagrad: centered is not an option of it"));
}

TEST_CASE("a slice that does not fit is refused", "[optim]") {
  const auto sgd = make_optimizer({});
  const auto message = [&](const OptimizerSlice& slice, std::int64_t step = 1) {
    return message_of<ValueError>([&] { sgd->update(slice, {.step = step, .lr = 0.1}); });
  };
  OptimizerSlice slice = one_slice(4);
  CHECK(message(slice, 0) == "optimizer: steps are counted from 1, this is step 0");
  CHECK_THROWS_WITH(sgd->update(slice, {.lr = 0.1, .clip_value = 0}),
                    "optimizer: clip_value must be above 0, not 0");
  slice.gradient = at::Tensor();
  CHECK(message(slice) == "optimizer: a slice's gradient is missing");
  slice.gradient = at::ones({5});
  CHECK(message(slice) == "optimizer: a slice's gradient has 5 elements, its parameter 4");
  slice.gradient = at::ones({4}, at::kDouble);
  CHECK(message(slice) ==
        "optimizer: a slice's gradient is Double, must be of the same dtype, with a parameter in "
        "Float");
  slice.gradient = at::ones({2, 2});
  CHECK(message(slice) ==
        "optimizer: a slice's gradient must have one dimension and be contiguous on the CPU, it "
        "is of shape [2, 2] on cpu");
  slice.gradient = at::ones({8}).slice(0, 0, 8, 2);
  CHECK_THAT(message(slice), ContainsSubstring("be contiguous"));
  slice = one_slice(4);
  slice.state = {at::zeros({4})};
  CHECK(message(slice) == "optimizer: a slice has 1 tensor of state, the optimizer 0");
  slice = one_slice(4);
  slice.rounded = at::ones({4});
  CHECK_THAT(message(slice), ContainsSubstring("rounded copy is Float, must be bfloat16 or"));
  slice.parameter = at::ones({4}, at::kLong);
  CHECK_THAT(message(slice), ContainsSubstring("parameter is Long, must be float32 or float64"));

  const auto momentum = make_optimizer({.momentum = 0.5});
  slice = one_slice(4);
  slice.state = {at::zeros({4}, at::kDouble)};
  CHECK_THROWS_WITH(momentum->update(slice, {.lr = 0.1}),
                    ContainsSubstring("a slice's state is Double, must be of the same dtype"));
  OptimizerSlice wide{at::ones({4}, at::kDouble), at::ones({4}, at::kBFloat16), {}, {}};
  CHECK_THAT(message(wide), ContainsSubstring("gradient is BFloat16, must be of the same dtype"));
}

}  // namespace lockstep
