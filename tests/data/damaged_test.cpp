#include "framework/data/damaged.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"

namespace lockstep {

using testing::MadeOptions;
using testing::MadeSample;
using testing::MadeSet;

TEST_CASE("all samples that can't be made are found, in their order, by any number of threads") {
  for (const bool is_slow : {false, true}) {
    for (const std::int64_t threads : {1, 3}) {
      const MadeSet data({.size = 1000,
                          .type = value_sample({1000}, 1),
                          .is_slow = is_slow,
                          .make = [](const MadeSample& sample) {
                            if (sample.epoch != kUnaugmented) throw ValueError("augmented");
                            if (sample.index % 7 == 0) throw DataError(str("file ", sample.index));
                          }});
      std::vector<std::int64_t> found;
      std::int64_t last = 0;
      bool rises = true;
      find_damaged(data,
                   {.threads = threads,
                    .progress =
                        [&](std::int64_t done, std::int64_t samples) {
                          rises = rises && done > last && samples == 1000;
                          last = done;
                        }},
                   [&](const DamagedSample& damaged) {
                     CHECK(damaged.reason == str("file ", damaged.index));
                     found.push_back(damaged.index);
                   });
      std::vector<std::int64_t> expected;
      for (std::int64_t i = 0; i < 1000; i += 7) expected.push_back(i);
      CHECK(found == expected);
      CHECK(rises);
      CHECK(last == 1000);
    }
  }
  const MadeSet broken({.size = 100, .make = [](const MadeSample&) { throw ValueError("a bug"); }});
  CHECK_THROWS_AS(find_damaged(broken, {}, [](const DamagedSample&) {}), ValueError);
  CHECK_THROWS_WITH(find_damaged(broken, {}, [](const DamagedSample&) {}), "a bug (sample 0)");
}

TEST_CASE("samples with values that are not finite are damaged") {
  const auto found_where = [](bool has_targets) {
    const MadeSet data({.size = 1000,
                        .type = value_sample({3}, 1),
                        .has_targets = has_targets,
                        .make = [=](const MadeSample& sample) {
                          if (sample.index == 300)
                            sample.input[1].fill_(std::numeric_limits<float>::infinity());
                          if (sample.index == 301 || !has_targets)
                            sample.target.fill_(std::nan(""));
                        }});
    std::string found;
    find_damaged(data, {}, [&](const DamagedSample& damaged) {
      found += str(damaged.index, ": ", damaged.reason, "\n");
    });
    return found;
  };
  CHECK(found_where(true) ==
        "300: an input that is inf, at [1]\n"
        "301: a target that is nan, at [0]\n");
  // Targets that are not known are NaN.
  CHECK(found_where(false) == "300: an input that is inf, at [1]\n");
}

TEST_CASE("targets that are no class are damaged, but for those that do not count") {
  SampleType type = class_sample({3}, 4);
  type.ignored = -1;
  const auto set = std::make_shared<const MadeSet>(
      MadeOptions{.size = 1000, .type = type, .make = [](const MadeSample& sample) {
                    if (sample.index == 300) sample.target.fill_(4);
                    if (sample.index == 301) sample.target.fill_(-1);
                    if (sample.index == 302) sample.target.fill_(-100);
                  }});
  const auto found_in = [&](const Dataset& data, std::optional<std::int64_t> ignored) {
    std::string found;
    find_damaged(data, {.ignored = ignored}, [&](const DamagedSample& damaged) {
      found += str(damaged.index, ": ", damaged.reason, "\n");
    });
    return found;
  };
  CHECK(found_in(*set, -100) == "300: a target that is 4, but must be a class, 0 to 3\n");
  // The number is one of the part, whose users have the whole.
  CHECK(found_in(Subset(set, {1, 302, 300}), {}) ==
        "1: sample 302 of the whole set: a target that is -100, but must be a class, 0 to 3\n"
        "2: sample 300 of the whole set: a target that is 4, but must be a class, 0 to 3\n");
}

}  // namespace lockstep
