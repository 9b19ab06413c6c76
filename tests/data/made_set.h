#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>

#include "framework/base/random.h"
#include "framework/data/dataset.h"

namespace lockstep::testing {

/// A sample of a MadeSet while it is made: its tensors are zeros.
struct MadeSample {
  std::int64_t index;
  std::int64_t epoch;
  at::Tensor input;
  at::Tensor target;
};

/// What a MadeSet has, and what it answers. An empty function: what a data set says by itself.
struct MadeOptions {
  std::int64_t size = 1;
  SampleType type = value_sample({1}, 1);
  std::vector<std::string> class_names = {};
  bool is_slow = false;
  bool has_targets = true;
  std::vector<std::string> left_out = {};
  /// Writes a sample's values, or throws.
  std::function<void(const MadeSample& sample)> make = {};
  std::function<std::optional<std::int64_t>(std::int64_t index)> label = {};
  std::function<std::string(std::int64_t index)> name = {};
  std::function<std::string()> fingerprint = {};
};

/// A data set of a test's own.
class MadeSet final : public Dataset {
 public:
  explicit MadeSet(MadeOptions options) : options_(std::move(options)) {}

  std::int64_t size() const override { return options_.size; }
  SampleType type() const override { return options_.type; }
  std::vector<std::string> class_names() const override { return options_.class_names; }
  bool is_slow() const override { return options_.is_slow; }
  bool has_targets() const override { return options_.has_targets; }
  std::vector<std::string> left_out() const override { return options_.left_out; }
  std::optional<std::int64_t> label(std::int64_t index) const override {
    return options_.label ? options_.label(index) : Dataset::label(index);
  }
  std::string sample_name(std::int64_t index) const override {
    return options_.name ? options_.name(index) : Dataset::sample_name(index);
  }
  std::string fingerprint() const override {
    return options_.fingerprint ? options_.fingerprint() : Dataset::fingerprint();
  }

 private:
  Batch gather(std::span<const std::int64_t> indices, std::int64_t epoch) const override {
    const auto zeros = [&](const TensorType& type) {
      return at::zeros(type.sizes(std::ssize(indices)), type.dtype);
    };
    const Batch batch{zeros(options_.type.input), zeros(options_.type.target)};
    for (std::int64_t row = 0; options_.make && row < std::ssize(indices); ++row) {
      options_.make(
          {indices[static_cast<std::size_t>(row)], epoch, batch.inputs[row], batch.targets[row]});
    }
    return batch;
  }

  MadeOptions options_;
};

[[nodiscard]] inline std::shared_ptr<const Dataset> made_set(MadeOptions options) {
  return std::make_shared<const MadeSet>(std::move(options));
}

/// A point of two features in one of three classes.
inline void make_point(const MadeSample& sample) {
  const Key key = Key(5).fold(static_cast<std::uint64_t>(sample.index));
  for (std::int64_t j = 0; j < 2; ++j) {
    const auto bits = key.draw(static_cast<std::uint64_t>(j)) >> 40;
    sample.input[j].fill_(static_cast<double>(bits) / double(1 << 24) - 0.5);
  }
  sample.target.fill_(sample.index % 3);
}

}  // namespace lockstep::testing
