#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "framework/data/data.h"

namespace lockstep {

/// Files of NumPy's format .npy, as formats::NpyArray reads them: pairs of inputs and targets,
/// whose first dimension is that of samples.
struct NpySetOptions {
  /// What targets are; automatic: integers are classes, floats are values.
  enum class Task { automatic, regression, classification };

  std::string inputs{};
  std::string targets{};
  std::optional<std::string> validation_inputs{};
  std::optional<std::string> validation_targets{};
  std::optional<std::string> test_inputs{};
  std::optional<std::string> test_targets{};
  Task task = Task::automatic;
  std::optional<std::int64_t> classes{};  ///< none: one more than the greatest to train on
};

/// The sets of .npy files, which stay on the disk (see File::content()). What a sample is follows
/// from the arrays; (n) is its shape's first dimension:
///
///   inputs                                 targets               the sample
///   integers (n, positions)                classes, same shape   token_sample, int64
///   uint8 (n, height, width[, 1 … 4])      as below              inputs (channels, height, width),
///   uint8 (n, 1 … 4, height, width)                              scaled to 0 … 1
///   other numbers (n) or (n, …)            as below              inputs float32 of this shape,
///                                                                (1) for (n)
///                                          classes (n)           classes 0 … classes-1
///                                          values (n) or (n, k)  1 or k float32 values
///
/// Integers and bool are classes and floats are values unless `task` says otherwise. Floats (n) or
/// (n, 1) to train on that are all whole numbers may be either, so `task` must say it. Targets that
/// are `context.ignored` are no classes, wherever they are.
///
/// DataError, with the file and numbers, for arrays that are none of these, that have not equally
/// many samples, one at least, or other shapes than those to train on, and for classes and tokens
/// out of range or not exact: with `context.keeps_damaged` one of batch(), as is always a number
/// that is not finite, or that float32 can't hold. The first number of an array that float32 moves
/// by a half or more is told in a warning, once a process; floats from 2^53 on that have at most 9
/// digits, such as 1e20, do not count. ValueError for inputs without targets, and targets without
/// inputs. With `context.fitted` the samples are what it says, or there are as many classes, and
/// without `context.needs_targets` the inputs of a validation or test set may stand alone.
[[nodiscard]] DataSets load_npy(const NpySetOptions& options, const DataContext& context = {});

/// For the registry.
[[nodiscard]] DataKind npy_kind();

}  // namespace lockstep
