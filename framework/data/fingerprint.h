#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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

  void add(std::int64_t number) { sum_.add(std::as_bytes(std::span(&number, 1))); }
  void add(std::string_view text) {
    add(std::ssize(text));
    sum_.add(std::as_bytes(std::span(text)));
  }
  /// All values of a contiguous tensor on the CPU.
  void add(const at::Tensor& values) {
    sum_.add({static_cast<const std::byte*>(values.data_ptr()), values.nbytes()});
  }
  /// The samples, unaugmented; of many, or of those that are slow to make, `most` that are evenly
  /// spread, the first and the last among them. None: as many as take a moment.
  void add_samples(const Dataset& data, std::optional<std::int64_t> most = {});

  [[nodiscard]] std::string text() const { return sum_.text(); }

 private:
  storage::Checksum sum_;
};

}  // namespace lockstep::data
