#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/data/dataset.h"

namespace lockstep {

/// Why some samples can't be made, by their index.
struct DamagedRows {
  std::map<std::int64_t, std::string> reasons = {};
  /// More such samples, sorted. There may be millions of them: they have one reason in common.
  std::vector<std::int64_t> others = {};
  std::string reason_of_others = {};

  /// Throws the DataError of a row that is one of these.
  void check(std::int64_t row) const;
};

/// Samples that are held in memory as two tensors. The same in every epoch.
class TensorSet : public Dataset {
 public:
  /// Sample i is row i of `inputs` and of `targets`, which nobody may write to from now on.
  /// ValueError unless both are contiguous, on the CPU, as `type` says, and have equally many rows,
  /// one at least. `names` are those of the classes, or none. Without `targets` they are not known.
  /// batch() throws the DataError of samples that are `damaged`.
  TensorSet(at::Tensor inputs, std::optional<at::Tensor> targets, SampleType type,
            std::vector<std::string> names = {}, DamagedRows damaged = {});

  [[nodiscard]] std::int64_t size() const override { return inputs_.size(0); }
  [[nodiscard]] SampleType type() const override { return type_; }
  [[nodiscard]] std::vector<std::string> class_names() const override { return names_; }
  [[nodiscard]] bool has_targets() const override { return has_targets_; }
  [[nodiscard]] std::optional<std::int64_t> label(std::int64_t index) const override;
  [[nodiscard]] std::string origin(std::int64_t index) const override {
    return origin_ ? origin_(index) : std::string();
  }
  [[nodiscard]] std::string fingerprint() const override;

  /// Says what origin() is, before others see the set.
  void locate(std::function<std::string(std::int64_t index)> origin) {
    origin_ = std::move(origin);
  }

 private:
  [[nodiscard]] Batch gather(std::span<const std::int64_t> indices,
                             std::int64_t epoch) const override;

  at::Tensor inputs_;
  at::Tensor targets_;
  SampleType type_;
  std::vector<std::string> names_;
  bool has_targets_;
  DamagedRows damaged_;
  std::function<std::string(std::int64_t index)> origin_;
};

}  // namespace lockstep
