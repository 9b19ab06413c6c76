#pragma once

#include <cstdint>

#include "framework/data/data.h"

namespace lockstep {

/// Data whose best loss is known: to try models and jobs on, of any size, without files.
struct SyntheticOptions {
  enum class Task { regression, classification };

  Task task = Task::regression;
  std::int64_t samples = 10000;  ///< to train on
  std::int64_t validation_samples = 0;
  std::int64_t test_samples = 1000;
  std::int64_t features = 10;
  std::int64_t outputs = 1;   ///< of regression
  std::int64_t classes = 10;  ///< of classification
  double noise = 0.1;
};

/// Sets of samples that are made when they are asked for, each from a key (seed, set, i); in memory
/// is only what all share.
///
/// Regression: x ~ N(0, 1), y = Wx + b + noise · N(0, 1), with W ~ N(0, 1 / features) and b ~
/// N(0, 1) by the seed. The true W and b have the mean squared error noise², a model that is fitted
/// to n samples noise² · (1 - (features + 1) / n) on these.
///
/// Classification: each class has a centre ~ N(0, 1) by the seed, a sample a class, all equally
/// likely, and x = centre + noise · N(0, 1). The best model is linear: the nearest centre.
///
/// The bits follow from the C library's log, cos and sin. ValueError for sizes below 1 (of the
/// validation and test set: below 0), for classes below 2 and for a noise below 0.
[[nodiscard]] DataSets make_synthetic(const SyntheticOptions& options, std::uint64_t seed);

/// For the registry.
[[nodiscard]] DataKind synthetic_kind();

}  // namespace lockstep
