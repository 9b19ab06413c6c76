#pragma once

#include <string>
#include <vector>

#include "framework/data/data.h"

namespace lockstep {

/// What a source has decided about a job's data, in a few lines for people: the sets with their
/// samples, the task, the classes with their numbers of training samples (the first ten), the
/// columns or tokens, what becomes of the values. Samples of classes are counted by
/// Dataset::label(). Where they are more than 20 million, the line says that they are not counted.
[[nodiscard]] std::vector<std::string> describe(const DataSets& data);

}  // namespace lockstep
