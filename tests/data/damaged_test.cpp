#include "framework/data/damaged.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "tests/catch.h"

namespace lockstep {
namespace {

// Every `step`-th sample can't be made.
class Damaged final : public Dataset {
 public:
  Damaged(std::int64_t size, std::int64_t step, bool is_slow)
      : size_(size), step_(step), is_slow_(is_slow) {}
  std::int64_t size() const override { return size_; }
  SampleType type() const override { return value_sample({1000}, 1); }
  bool is_slow() const override { return is_slow_; }

 private:
  Batch gather(std::span<const std::int64_t> indices, std::int64_t epoch) const override {
    for (const std::int64_t index : indices) {
      if (epoch != kUnaugmented) throw ValueError("augmented");
      if (index % step_ == 0) throw DataError(str("file ", index));
    }
    return {at::zeros({std::ssize(indices), 1000}), at::zeros({std::ssize(indices), 1})};
  }
  std::int64_t size_;
  std::int64_t step_;
  bool is_slow_;
};

class Broken final : public Dataset {
 public:
  std::int64_t size() const override { return 100; }
  SampleType type() const override { return value_sample({1}, 1); }

 private:
  Batch gather(std::span<const std::int64_t> /*indices*/, std::int64_t /*epoch*/) const override {
    throw ValueError("a bug");
  }
};

}  // namespace

TEST_CASE("all samples that can't be made are found, in their order, by any number of threads") {
  for (const bool is_slow : {false, true}) {
    for (const std::int64_t threads : {1, 3}) {
      const Damaged data(1000, 7, is_slow);
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
  CHECK_THROWS_AS(find_damaged(Broken(), {}, [](const DamagedSample&) {}), ValueError);
}

}  // namespace lockstep
