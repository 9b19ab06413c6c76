#include "framework/data/damaged.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/data/made_set.h"

namespace lockstep {

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

}  // namespace lockstep
