#include "framework/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"

namespace lockstep {
namespace {

using Catch::Matchers::StartsWith;
using testing::message_of;

std::vector<double> rates(const ScheduleOptions& options, double base_lr, std::int64_t steps) {
  std::vector<double> all;
  for (std::int64_t step = 0; step < steps; ++step) {
    all.push_back(learning_rate(options, base_lr, static_cast<double>(step), steps));
  }
  return all;
}

void check_near(const std::vector<double>& actual, const std::vector<double>& expected) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    INFO("step " << i);
    CHECK(actual[i] == Approx(expected[i]).epsilon(1e-12).margin(1e-15));
  }
}

// The learning rates of whole steps, from whole numbers wherever the formulas allow it.
double rate_of_whole(const ScheduleOptions& options, double base_lr, std::int64_t step,
                     std::int64_t steps) {
  const auto real = [](std::int64_t whole) { return static_cast<double>(whole); };
  const std::int64_t warmup = options.warmup_steps;
  if (step < warmup) return base_lr * (real(step + 1) / real(warmup + 1));
  const double part = real(step - warmup) / real(steps - warmup);
  const auto half_wave = [](double from, double to, double at) {
    return to + (from - to) * (1 + std::cos(std::numbers::pi * at)) / 2;
  };
  if (options.name == "linear") return base_lr * (1 + (options.end_factor - 1) * part);
  if (options.name == "cosine") return half_wave(base_lr, options.eta_min, part);
  if (options.name == "step") {
    return base_lr * std::pow(options.gamma, real((step - warmup) / options.step_size));
  }
  if (options.name == "constant") return base_lr;
  const double first_lr = base_lr / options.div_factor;
  const double peak = options.pct_start * real(steps) - 1;
  return real(step) <= peak ? half_wave(first_lr, base_lr, real(step) / peak)
                            : half_wave(base_lr, first_lr / options.final_div_factor,
                                        (real(step) - peak) / (real(steps) - 1 - peak));
}

}  // namespace

TEST_CASE("a constant learning rate is the given one, to the bit", "[optim]") {
  CHECK(rates({}, 0.3, 3) == std::vector<double>{0.3, 0.3, 0.3});
}

TEST_CASE("a warm-up rises in equal steps to where the schedule begins", "[optim]") {
  check_near(rates({.name = "constant", .warmup_steps = 4}, 1, 6), {0.2, 0.4, 0.6, 0.8, 1, 1});
  check_near(rates({.name = "linear", .warmup_steps = 1}, 2, 5), {1, 2, 1.5, 1, 0.5});
  check_near(rates({.name = "step", .warmup_steps = 1, .step_size = 2, .gamma = 0.5}, 1, 6),
             {0.5, 1, 1, 0.5, 0.5, 0.25});
  // As long as the run, it ends before the schedule begins.
  check_near(rates({.name = "cosine", .warmup_steps = 3}, 1, 3), {0.25, 0.5, 0.75});
}

TEST_CASE("linear goes to end_factor of the learning rate", "[optim]") {
  check_near(rates({.name = "linear"}, 1, 4), {1, 0.75, 0.5, 0.25});
  check_near(rates({.name = "linear", .end_factor = 0.5}, 0.8, 4), {0.8, 0.7, 0.6, 0.5});
}

TEST_CASE("cosine goes to eta_min along half a wave", "[optim]") {
  const double root = std::sqrt(0.5);
  check_near(rates({.name = "cosine"}, 1, 4), {1, (1 + root) / 2, 0.5, (1 - root) / 2});
  check_near(rates({.name = "cosine", .eta_min = 0.2}, 1, 2), {1, 0.6});
  check_near(rates({.name = "cosine", .warmup_steps = 2}, 1, 4), {1 / 3.0, 2 / 3.0, 1, 0.5});
}

TEST_CASE("step falls by gamma every step_size steps", "[optim]") {
  check_near(rates({.name = "step", .step_size = 3}, 1, 8), {1, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01});
  check_near(rates({.name = "step", .step_size = 1, .gamma = 2}, 3, 3), {3, 6, 12});
}

TEST_CASE("one_cycle is torch's OneCycleLR", "[optim]") {
  // OneCycleLR(max_lr=1, total_steps=10): it rises until step 10 * pct_start - 1.
  const auto half_wave = [](double from, double to, double part) {
    return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * part));
  };
  std::vector<double> expected{0.04, half_wave(0.04, 1, 0.5), 1};
  for (int i = 1; i <= 7; ++i) expected.push_back(half_wave(1, 4e-6, i / 7.0));
  check_near(rates({.name = "one_cycle"}, 1, 10), expected);
  check_near(rates({.name = "one_cycle",
                    .pct_start = 0.5,
                    .div_factor = 2,
                    .final_div_factor = 10,
                    .anneal_strategy = Anneal::linear},
                   1, 10),
             {0.5, 0.625, 0.75, 0.875, 1, 0.81, 0.62, 0.43, 0.24, 0.05});
}

TEST_CASE("one_cycle of a few steps, or of one phase, stays within its bounds", "[optim]") {
  for (const double part : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    for (std::int64_t steps = 1; steps < 8; ++steps) {
      for (const double rate : rates({.name = "one_cycle", .pct_start = part}, 1, steps)) {
        CHECK(rate >= 4e-6 * (1 - 1e-9));
        CHECK(rate <= 1);
      }
    }
  }
  check_near(rates({.name = "one_cycle", .pct_start = 1, .anneal_strategy = Anneal::linear}, 1, 3),
             {0.04, 0.52, 1});
}

TEST_CASE("whole steps have the rates of whole numbers, to the bit", "[optim]") {
  for (const ScheduleOptions& options :
       {ScheduleOptions{.warmup_steps = 7},
        ScheduleOptions{.name = "linear", .warmup_steps = 3, .end_factor = 0.1},
        ScheduleOptions{.name = "cosine", .warmup_steps = 10, .eta_min = 1e-5},
        ScheduleOptions{.name = "step", .warmup_steps = 2, .step_size = 7, .gamma = 0.97},
        ScheduleOptions{.name = "one_cycle", .pct_start = 0.37}}) {
    INFO(options.name);
    for (const std::int64_t steps : {12, 101, 999'999'937}) {
      for (std::int64_t i = 0; i < std::min<std::int64_t>(steps, 60); ++i) {
        for (const std::int64_t step : {i, steps - 1 - i}) {
          CHECK(learning_rate(options, 0.003, static_cast<double>(step), steps) ==
                rate_of_whole(options, 0.003, step, steps));
        }
      }
    }
  }
}

TEST_CASE("between two steps warm-up and curves go on evenly", "[optim]") {
  CHECK(learning_rate({.warmup_steps = 4}, 1, 0.5, 6) == Approx(0.3));
  CHECK(learning_rate({.warmup_steps = 4}, 1, 3.75, 6) == Approx(0.95));
  CHECK(learning_rate({.warmup_steps = 4}, 1, 4.25, 6) == 1);
  CHECK(learning_rate({.name = "linear"}, 1, 0.5, 4) == Approx(0.875));
  CHECK(learning_rate({.name = "linear"}, 1, 3.5, 4) == Approx(0.125));
  CHECK(learning_rate({.name = "linear", .warmup_steps = 1}, 2, 1.5, 5) == Approx(1.75));
  // Steps of half the length are those of a run of twice as many, but for its warm-up.
  for (std::int64_t i = 0; i < 20; ++i) {
    const auto step = static_cast<double>(i);
    CHECK(learning_rate({.name = "cosine"}, 1, step / 2, 10) ==
          learning_rate({.name = "cosine"}, 1, step, 20));
  }
}

TEST_CASE("between two steps step stays until the next multiple of step_size", "[optim]") {
  const ScheduleOptions options{.name = "step", .warmup_steps = 1, .step_size = 3, .gamma = 0.5};
  CHECK(learning_rate(options, 1, 0.5, 9) == 0.75);
  for (const double step : {1.0, 1.5, 3.0, 3.999}) CHECK(learning_rate(options, 1, step, 9) == 1);
  for (const double step : {4.0, 6.5, 6.999}) CHECK(learning_rate(options, 1, step, 9) == 0.5);
  CHECK(learning_rate(options, 1, 7, 9) == 0.25);
  CHECK(learning_rate(options, 1, 8.9, 9) == 0.25);
}

TEST_CASE("beyond the last step one_cycle has that step's rate", "[optim]") {
  const ScheduleOptions line{.name = "one_cycle", .anneal_strategy = Anneal::linear};
  CHECK(learning_rate(line, 1, 1.5, 10) == Approx(0.76));
  CHECK(learning_rate(line, 1, 8.5, 10) == Approx(4e-6 + (1 - 4e-6) * 0.5 / 7));
  for (const double part : {0.0, 0.3, 1.0}) {
    const ScheduleOptions options{.name = "one_cycle", .pct_start = part};
    const double last = learning_rate(options, 1, 9, 10);
    for (const double step : {9.25, 9.999}) CHECK(learning_rate(options, 1, step, 10) == last);
  }
}

TEST_CASE("every schedule is the constant's times the base learning rate", "[optim]") {
  for (const ScheduleOptions& options :
       {ScheduleOptions{.name = "linear", .warmup_steps = 3}, ScheduleOptions{.name = "cosine"},
        ScheduleOptions{.name = "step", .step_size = 2}, ScheduleOptions{.name = "one_cycle"}}) {
    const auto one = rates(options, 1, 20);
    const auto scaled = rates(options, 0.004, 20);
    for (std::size_t i = 0; i < one.size(); ++i) CHECK(scaled[i] == Approx(0.004 * one[i]));
  }
}

TEST_CASE("a schedule's options obey the rules of their keys", "[optim]") {
  const auto message = [](const ScheduleOptions& options) {
    return message_of<ValueError>([&] { (void)learning_rate(options, 1, 0, 9); });
  };
  CHECK_THAT(
      message({.name = "cosin"}),
      StartsWith("there is no schedule 'cosin' (did you mean 'cosine'?); there are constant, "
                 "linear, cosine, step, one_cycle"));
  CHECK(message({.warmup_steps = -1}) ==
        "schedule constant: warmup_steps must be at least 0, not -1");
  CHECK(message({.name = "linear", .end_factor = -1}) ==
        "schedule linear: end_factor must be at least 0, not -1");
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(message({.name = "cosine", .eta_min = infinity}) ==
        "schedule cosine: eta_min must be a finite number, at least 0, not inf");
  CHECK(message({.name = "cosine", .steps = 0}) ==
        "schedule cosine: steps must be from 1 to 1000000000, not 0");
  CHECK(message({.name = "step"}) == "schedule step: step_size must be at least 1, not 0");
  CHECK(message({.name = "one_cycle", .pct_start = 1.5}) ==
        "schedule one_cycle: pct_start must be from 0 to 1, not 1.5");
}

TEST_CASE("an option that a schedule doesn't have is refused", "[optim]") {
  const auto is_refused = [](const std::string& option, const ScheduleOptions& options) {
    const std::string message =
        message_of<ValueError>([&] { (void)learning_rate(options, 1, 0, 9); });
    CHECK(message == "schedule " + options.name + ": " + option + " is not an option of it");
  };
  is_refused("steps", {.steps = 9});
  is_refused("end_factor", {.end_factor = 0.1});
  is_refused("eta_min", {.eta_min = 0.1});
  is_refused("step_size", {.step_size = 3});
  is_refused("gamma", {.gamma = 0.3});
  is_refused("warmup_steps", {.name = "one_cycle", .warmup_steps = 3});
  is_refused("pct_start", {.name = "cosine", .pct_start = 0.2});
  is_refused("div_factor", {.name = "cosine", .div_factor = 2});
  is_refused("final_div_factor", {.name = "cosine", .final_div_factor = 2});
  is_refused("anneal_strategy", {.name = "cosine", .anneal_strategy = Anneal::linear});
}

TEST_CASE("a schedule of one's own has options, keys, a warm-up and checks as all have",
          "[optim]") {
  struct PolynomialOptions {
    double power = 1;
  };
  register_schedule(schedule_kind<PolynomialOptions>(
      "own_polynomial", "falls along a power",
      [](PolynomialOptions& options) -> keys::ConfigKeys {
        return {{"power", number(options.power, keys::greater_than(0.0)), "of what is left"}};
      },
      [](const PolynomialOptions& options, const ScheduleStep& at) {
        return at.base_lr * std::pow(1 - at.part(), options.power);
      }));
  ScheduleOptions options{.name = "own_polynomial", .warmup_steps = 1};
  check_near(rates(options, 2, 5), {1, 2, 1.5, 1, 0.5});
  options.own.of<PolynomialOptions>("own_polynomial").power = 2;
  check_near(rates(options, 2, 5), {1, 2, 1.125, 0.5, 0.125});
  options.own.of<PolynomialOptions>("own_polynomial").power = 0;
  CHECK_THROWS_WITH(learning_rate(options, 1, 0, 5),
                    "schedule own_polynomial: power must be greater than 0, not 0");
  options.name = "linear";
  CHECK_THROWS_WITH(learning_rate(options, 1, 0, 5),
                    "schedule linear: power is not an option of it");
  register_schedule(
      schedule_kind("own_wrong", "", [](const ScheduleStep& at) { return at.step - 1; }));
  CHECK_THROWS_WITH(
      learning_rate({.name = "own_wrong"}, 1, 0, 5),
      "schedule own_wrong: the learning rate after 0 steps must be finite and at least "
      "0, not -1");
  CHECK_THROWS_WITH(register_schedule(schedule_registry().at("cosine")),
                    "there is a schedule 'cosine' already");
}

TEST_CASE("a run's learning rate checks its options once", "[optim]") {
  struct CountedOptions {
    double factor = 2;
  };
  static int checks = 0;
  register_schedule(schedule_kind<CountedOptions>(
      "own_counted", "",
      [](CountedOptions& options) -> keys::ConfigKeys {
        ++checks;
        return {{"factor", number(options.factor, keys::greater_than(0.0)), "of the rate"}};
      },
      [](const CountedOptions& options, const ScheduleStep& at) {
        return at.base_lr * options.factor;
      }));
  const ScheduleOptions options{.name = "own_counted", .warmup_steps = 1};
  const LearningRate rate(options, 3, 100);
  const int before = checks;
  CHECK(before > 0);
  for (int step = 1; step <= 100; ++step) CHECK(rate.at(step) == 6);
  CHECK(rate.at(0) == 1.5);
  CHECK(checks == before);
  CHECK(rate.at(7) == learning_rate(options, 3, 7, 100));
  CHECK_THROWS_WITH(rate.at(101), "learning_rate: step 101 is not one of 0 to 100");
}

TEST_CASE("a warm-up longer than the run is refused, in its first step too", "[optim]") {
  for (const char* const name : {"constant", "linear", "cosine"}) {
    const ScheduleOptions options{.name = name, .warmup_steps = 9};
    CHECK_THROWS_AS(learning_rate(options, 1, 0, 3), ValueError);
    CHECK_THROWS_WITH(
        learning_rate(options, 1, 2, 8),
        std::string("schedule ") + name + ": warmup_steps is 9, but the run has 8 steps");
    CHECK(learning_rate(options, 1, 8, 9) == 0.9);
  }
}

TEST_CASE("a step outside of the run has no learning rate", "[optim]") {
  CHECK_THROWS_WITH(learning_rate({}, 1, 6, 5), "learning_rate: step 6 is not one of 0 to 5");
  CHECK_THROWS_AS(learning_rate({}, 1, -1, 5), ValueError);
  CHECK_THROWS_AS(learning_rate({}, 1, -0.5, 5), ValueError);
  CHECK_THROWS_AS(learning_rate({}, 1, std::nan(""), 5), ValueError);
  CHECK(learning_rate({}, 1, 4.5, 5) == 1);
}

}  // namespace lockstep
