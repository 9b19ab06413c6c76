#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/data/dataset.h"
#include "framework/data/fashion_mnist.h"

namespace lockstep {

struct DataOptions {
  std::string name = "pmean_example";    ///< one of data_names()
  std::string root = kFashionMnistRoot;  ///< the folder of the files, for sets that have some
};

struct DataSets {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;  ///< null where there is none
};

/// The names that load_data knows, sorted.
[[nodiscard]] const std::vector<std::string>& data_names();

/// Loads the sets of that name for a job of `replicas` replicas (pmean_example grows with them). An
/// unknown name and less than one replica are ValueErrors, files that are missing or damaged a
/// DataError.
[[nodiscard]] DataSets load_data(const DataOptions& options, std::int64_t replicas);

}  // namespace lockstep
