#include "framework/data/damaged.h"

#include <cmath>
#include <limits>
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

// An input of sample 300 is infinite, and the target of the next is NaN.
class Infinite final : public Dataset {
 public:
  explicit Infinite(bool has_targets) : has_targets_(has_targets) {}
  std::int64_t size() const override { return 1000; }
  SampleType type() const override { return value_sample({3}, 1); }
  bool has_targets() const override { return has_targets_; }

 private:
  Batch gather(std::span<const std::int64_t> indices, std::int64_t /*epoch*/) const override {
    Batch batch{at::zeros({std::ssize(indices), 3}), at::zeros({std::ssize(indices), 1})};
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      if (indices[i] == 300) batch.inputs[row][1] = std::numeric_limits<float>::infinity();
      if (indices[i] == 301 || !has_targets_) batch.targets[row] = std::nan("");
    }
    return batch;
  }
  bool has_targets_;
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

TEST_CASE("samples with values that are not finite are damaged") {
  const auto found_in = [](const Dataset& data) {
    std::string found;
    find_damaged(data, {}, [&](const DamagedSample& damaged) {
      found += str(damaged.index, ": ", damaged.reason, "\n");
    });
    return found;
  };
  CHECK(found_in(Infinite(true)) ==
        "300: an input that is inf, at [1]\n"
        "301: a target that is nan, at [0]\n");
  // Targets that are not known are NaN.
  CHECK(found_in(Infinite(false)) == "300: an input that is inf, at [1]\n");
}

}  // namespace lockstep
