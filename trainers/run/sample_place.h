#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/data/dataset.h"
#include "framework/tree/error_place.h"

namespace lockstep {

/// The samples of a batch, and of which set they are: for messages about them.
struct BatchSamples {
  const Dataset& data;
  std::vector<std::int64_t> indices;
  std::string set = {};  ///< "training"; "" where another place names it
  std::int64_t epoch = kUnaugmented;

  /// "sample 77 ('a.png') of the training set": the first that can't be made, while an exception
  /// of their batch is handled.
  [[nodiscard]] std::string first_not_made() const;
  /// "row 13 is sample 77 ('a.png') of the training set": the first row on which `of_row` throws,
  /// while an exception that it throws of all rows is handled. "" if it throws on none, or on each:
  /// then no sample is to blame.
  [[nodiscard]] std::string first_refused(
      const std::function<void(std::int64_t row)>& of_row) const;
};

/// The batch of the samples. What is thrown gains the sample.
[[nodiscard]] Batch made_batch(const BatchSamples& samples);

/// The place of what of(outputs, targets), the work of a loss or metric that is called `what`, has
/// thrown: the sample that it refuses, its name and, unless it threw an Error, the shapes. Outputs
/// may be undefined, for what looks at targets alone.
[[nodiscard]] std::string place_of_measure(
    const std::string& what, const BatchSamples& samples, const at::Tensor& outputs,
    const at::Tensor& targets,
    const std::function<void(const at::Tensor& outputs, const at::Tensor& targets)>& of);

/// of(outputs, targets). What it throws gains that place; what() tells the name, samples() which
/// samples they are.
template <typename What, typename Samples, typename Of>
auto measured(const What& what, const Samples& samples, const at::Tensor& outputs,
              const at::Tensor& targets, const Of& of) {
  const auto place = [&] {
    return place_of_measure(what(), samples(), outputs, targets,
                            [&](const at::Tensor& some_outputs, const at::Tensor& some_targets) {
                              (void)of(some_outputs, some_targets);
                            });
  };
  return placed(place, [&] { return of(outputs, targets); });
}

}  // namespace lockstep
