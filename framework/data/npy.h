#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "framework/data/data.h"

namespace lockstep {

/// Files of NumPy's format .npy, as formats::NpyArray reads them: pairs of inputs and targets,
/// whose first dimension is that of samples.
struct NpySetOptions {
  std::string inputs{};
  std::string targets{};
  std::optional<std::string> validation_inputs{};
  std::optional<std::string> validation_targets{};
  std::optional<std::string> test_inputs{};
  std::optional<std::string> test_targets{};
  std::optional<std::int64_t> classes{};  ///< none: one more than the greatest to train on
};

/// The sets of .npy files, which stay on the disk (see DataFile::bytes()). What a sample is follows
/// from the arrays; (n) is its shape's first dimension:
///
///   inputs                                 targets               the sample
///   integers (n, positions)                integers, same shape  token_sample, int64
///   uint8 (n, height, width[, 1 … 4])      as below              inputs (channels, height, width),
///                                                                scaled to 0 … 1
///   other numbers (n) or (n, …)            as below              inputs float32 of this shape,
///                                                                (1) for (n)
///                                          integers, bool (n)    classes 0 … classes-1
///                                          floats (n) or (n, k)  1 or k float32 values
///
/// DataError, with the file and numbers, for arrays that are none of these, that have not equally
/// many samples, one at least, or other shapes than those to train on, and for classes and tokens
/// out of range. ValueError for inputs without targets, and targets without inputs. With
/// `context.fitted` the samples are what it says, or there are as many classes, and where
/// `context.needs_targets` is not set, the inputs of a validation or test set may stand alone.
[[nodiscard]] DataSets load_npy(const NpySetOptions& options, const DataContext& context = {});

/// For the registry.
[[nodiscard]] DataKind npy_kind();

}  // namespace lockstep
