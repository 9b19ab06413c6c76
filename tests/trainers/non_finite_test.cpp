// Where a loss is not finite since samples are not.

#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/data/finite.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/trainers/runs.h"
#include "trainers/run/trainer.h"

namespace lockstep {
namespace {

using testing::made_set;
using testing::MadeSample;
using testing::message_of;
using testing::TemporaryFolder;

// Twelve samples, of which one may have a value that is none, in its input or its target.
std::shared_ptr<const Dataset> holed(std::int64_t hole = -1, bool is_target = false,
                                     double input = std::nan("")) {
  return made_set({.size = 12,
                   .type = value_sample({2, 3}, 1),
                   .make =
                       [=](const MadeSample& sample) {
                         sample.input.fill_(0.5);
                         sample.target.fill_(0.5);
                         if (sample.index != hole) return;
                         if (is_target)
                           sample.target.fill_(std::numeric_limits<double>::infinity());
                         if (!is_target) sample.input[1][2].fill_(input);
                       },
                   .name = [](std::int64_t index) { return str("row ", index); }});
}

std::string trained_on(const DataSets& data, const std::string& trainer,
                       const std::string& model = "{name: linear}") {
  const TemporaryFolder folder;
  const Config config =
      parse_config("model: " + model +
                       "\n"
                       "data: {name: pmean_example, batch_size: 2, shuffle: false}\n"
                       "parallel: {replicas: 2}\n"
                       "trainer: {epochs: 1" +
                       trainer + "}\n",
                   "test");
  return message_of<DataError>(
      [&] { testing::train_in_map(config, data, {.output = folder.path()}); });
}

DataSets sets_of(std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> test = {}) {
  return {.train = std::move(train), .test = std::move(test)};
}

}  // namespace

TEST_CASE("samples that are not finite are named before the learning rate is blamed") {
  // The second step's samples are 4 and 5 on replica 0, 6 and 7 on replica 1.
  CHECK_THAT(trained_on(sets_of(holed(6)), ""),
             ContainsSubstring("the loss is not finite at step 2: of the training set, sample 6 "
                               "('row 6') has an input that is nan, at [1, 2]"));
  CHECK_THAT(trained_on(sets_of(holed(1, true)), ", accumulate: 2"),
             ContainsSubstring("the loss is not finite at step 1: of the training set, sample 1 "
                               "('row 1') has a target that is inf, at [0]"));
  const testing::CapturedStderr log;
  CHECK(trained_on(sets_of(holed(6)), ", non_finite: skip") == "no error");
  CHECK_THAT(log.text(), ContainsSubstring("sample 6 ('row 6') has an input that is nan, at [1, 2] "
                                           "(said once)"));
}

TEST_CASE("samples are named where a gradient alone is not finite") {
  // The one hidden unit's ReLU lets one infinity through and makes 0 of the other: then the loss is
  // finite, and the gradient of the unit's weights is 0 times infinity.
  std::set<std::string> found;
  for (const double input : {HUGE_VAL, -HUGE_VAL}) {
    const auto data = holed(6, false, input);
    const std::string message = trained_on(sets_of(data), "", "{name: mlp, hidden: [1]}");
    CHECK_THAT(message, ContainsSubstring(str(" is not finite at step 2: of the training set, "
                                              "sample 6 ('row 6') has an input that is ",
                                              input, ", at [1, 2]")));
    found.insert(message.find("a gradient is") == std::string::npos ? "loss" : "gradient");
  }
  CHECK(found == std::set<std::string>{"gradient", "loss"});
}

TEST_CASE("figures of samples that are not finite are an error") {
  const auto whole = holed();
  CHECK_THAT(trained_on(sets_of(whole, holed(11)), ""),
             ContainsSubstring("what is evaluated is not finite: sample 11 ('row 11') has an input "
                               "that is nan, at [1, 2]"));
  CHECK(trained_on(sets_of(whole, whole), "") == "no error");
}

TEST_CASE("the first of some samples that is not finite is named") {
  const std::vector<std::int64_t> some{3, 9, 4};
  CHECK(first_non_finite(*holed(4), some) ==
        "sample 4 ('row 4') has an input that is nan, at [1, 2]");
  CHECK(first_non_finite(*holed(5), some).empty());
}

}  // namespace lockstep
