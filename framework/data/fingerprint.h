#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "framework/data/dataset.h"
#include "framework/storage/checksum.h"

namespace lockstep::data {

/// What Dataset::fingerprint() is made of.
class Fingerprint {
 public:
  /// Begins with how many samples there are, what they are, and the classes' names.
  explicit Fingerprint(const Dataset& data);

  void add(std::int64_t number);
  void add(std::string_view text);
  /// All values of a contiguous tensor on the CPU.
  void add(const at::Tensor& values);
  /// The samples, unaugmented; of many, or of those that are slow to make, some that are evenly
  /// spread, the first and the last among them.
  void add_samples(const Dataset& data);

  [[nodiscard]] std::string text() const { return sum_.text(); }

 private:
  storage::Checksum sum_;
};

}  // namespace lockstep::data
