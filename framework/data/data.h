#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// What a set's targets are: numbers to predict, or the class of each sample.
enum class Task { regression, classification };

/// Some samples of a dataset, in the order asked for. With `count` of them:
///   inputs   float32, (count, features)
///   targets  regression: float32, (count, outputs); classification: int64, (count), each a class
///            in 0 … outputs-1
/// Both are contiguous, on the CPU, and the caller's own: writing to them changes no dataset.
struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
};

/// A fixed list of samples that is held in memory. Every function is const and may be called by
/// several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// How many samples there are; at least 1.
  [[nodiscard]] virtual std::int64_t size() const = 0;
  /// Input values a sample.
  [[nodiscard]] virtual std::int64_t features() const = 0;
  /// Regression: target values a sample. Classification: how many classes there are.
  [[nodiscard]] virtual std::int64_t outputs() const = 0;
  [[nodiscard]] virtual Task task() const = 0;

  /// The samples with these numbers, which may repeat; none gives tensors of 0 rows. A number
  /// outside 0 … size()-1 is a ValueError.
  [[nodiscard]] Batch batch(std::span<const std::int64_t> indices) const;

 protected:
  Dataset() = default;
  Dataset(const Dataset&) = default;
  Dataset& operator=(const Dataset&) = default;

 private:
  /// What batch() returns. Every index was checked.
  [[nodiscard]] virtual Batch gather(std::span<const std::int64_t> indices) const = 0;
};

/// The folder of Debian's package dataset-fashion-mnist.
inline constexpr const char* kFashionMnistRoot = "/usr/share/datasets/fashion-mnist";

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

/// Loads the sets called `options.name` for a job of `replicas` replicas. ValueError for an unknown
/// name and less than one replica, DataError for files that are missing or damaged.
///
/// fashion_mnist is FashionMnist. pmean_example has four samples a replica and no test set: inputs
/// x = 0, 1, …, 4·replicas-1, targets 2x + 0.5. Taken in order and cut over the replicas, replica r
/// has 4r … 4r+3. More than 2^20 replicas are a ValueError: float32 would round the targets.
[[nodiscard]] DataSets load_data(const DataOptions& options, std::int64_t replicas);

}  // namespace lockstep
