#include "trainers/run/hints.h"

#include <cstdint>
#include <limits>
#include <string>

#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/trainers/parsed_config.h"

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("keys for longer runs are told where the config has written them, and no others") {
  const auto told = [](const std::string& keys, std::int64_t steps) {
    return late_text(parse(kNames + keys), steps);
  };
  CHECK(told("", 3).empty());  // trainer.log_every is 20
  CHECK(told("trainer: {eval_every: 500}\n", 500).empty());
  CHECK(told("trainer: {eval_every: 500}\n", 42) ==
        "the run has 42 steps, fewer than trainer.eval_every (500): this comes at its end alone");
  CHECK(told("trainer: {log_every: 2, eval_every: 3}\ncheckpoint: {every: 4}\n", 1) ==
        "the run has 1 step, fewer than trainer.log_every (2), trainer.eval_every (3), "
        "checkpoint.every (4): these come at its end alone");
}

TEST_CASE("cores that others take are told where math threads wait for them") {
  const auto told = [](double waited_s, std::int64_t math_threads, double ran_s = 1) {
    return busy_text({.ran_s = ran_s, .waited_s = waited_s}, 5, math_threads);
  };
  CHECK(told(0.1, 2).empty());
  CHECK(told(2.4, 2).empty());
  CHECK_THAT(told(2.6, 2),
             ContainsSubstring("in 5.0 s this process' threads waited for one 2.6 s, ") &&
                 ContainsSubstring("parallel.threads_per_replica: 1 "));
  CHECK(told(2.6, 4).empty());
  // Threads that make batches take the cores.
  CHECK(told(2.6, 2, 7.6).empty());
  CHECK(!told(2.6, 2, 7.4).empty());
}

TEST_CASE("targets far from 1 are told where their mean would predict better than the model") {
  const auto told = [](double size, double loss, const Fitted& fitted) {
    // Targets are `size` times 1 and 3, in turn: their mean has a loss of size².
    const auto set = made_set({.size = 3000, .make = [size](const MadeSample& sample) {
                                 sample.target.fill_(size * (sample.index % 2 == 0 ? 1 : 3));
                               }});
    DataSets data{.train = set};
    data.fitted = fitted;
    const Objective objective = make_objective(parse(kNames), set->type());
    return scale_text(objective, data, "test", {{"loss", loss}});
  };
  const Fitted table{.targets = {"y"}};
  CHECK_THAT(told(1000, 2e6, table), ContainsSubstring("the test loss is above 1e+06, which") &&
                                         ContainsSubstring("data.normalize_targets: true gives"));
  CHECK(!told(0.001, 1e-5, table).empty());
  CHECK(told(1000, 0.9e6, table).empty());
  CHECK(told(1, 2, table).empty());
  CHECK(told(1000, std::numeric_limits<double>::quiet_NaN(), table).empty());
  CHECK(told(1000, 2e6, {}).empty());  // no table
  CHECK(told(1000, 2e6, {.targets = {"y"}, .class_count = 2}).empty());
  CHECK(told(1000, 2e6, {.targets = {"y"}, .target_scales = {{}}}).empty());
}
