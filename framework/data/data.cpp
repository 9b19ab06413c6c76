#include "framework/data/data.h"

#include <cstddef>

#include <ATen/ops/empty.h>

#include "framework/base/text.h"
#include "framework/data/fashion_mnist.h"

namespace lockstep {
namespace {

constexpr const char* kFashionMnist = "fashion_mnist";
constexpr const char* kPmeanExample = "pmean_example";

class PmeanExample final : public Dataset {
 public:
  explicit PmeanExample(std::int64_t replicas) {
    // 2x + 0.5 is exact in float32's 24 bits up to x = 2^22 - 1.
    constexpr std::int64_t kMostReplicas = std::int64_t{1} << 20;
    require(replicas <= kMostReplicas, "pmean_example: replicas is ", replicas,
            ", but must be 1 ... ", kMostReplicas);
    size_ = 4 * replicas;
  }

  std::int64_t size() const override { return size_; }
  std::int64_t features() const override { return 1; }
  std::int64_t outputs() const override { return 1; }
  Task task() const override { return Task::regression; }

 private:
  Batch gather(std::span<const std::int64_t> indices) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    Batch batch{at::empty({count, 1}, at::kFloat), at::empty({count, 1}, at::kFloat)};
    float* input = batch.inputs.data_ptr<float>();
    float* target = batch.targets.data_ptr<float>();
    for (const std::int64_t index : indices) {
      const auto x = static_cast<float>(index);
      *input++ = x;
      *target++ = 2 * x + 0.5F;
    }
    return batch;
  }

  std::int64_t size_;
};

}  // namespace

Batch Dataset::batch(std::span<const std::int64_t> indices) const {
  const std::int64_t count = size();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] >= 0 && indices[i] < count) continue;
    throw ValueError(str("dataset: index ", indices[i], " (number ", i, " of ", indices.size(),
                         " in the batch) is outside 0 ... ", count - 1, ": the set has ",
                         counted(count, "sample")));
  }
  return gather(indices);
}

const std::vector<std::string>& data_names() {
  static const std::vector<std::string> names{kFashionMnist, kPmeanExample};
  return names;
}

DataSets load_data(const DataOptions& options, std::int64_t replicas) {
  require(replicas >= 1, "load_data: replicas is ", replicas, ", but must be at least 1");
  if (options.name == kFashionMnist) {
    return {std::make_shared<const FashionMnist>(options.root, FashionMnist::Split::train),
            std::make_shared<const FashionMnist>(options.root, FashionMnist::Split::test)};
  }
  if (options.name == kPmeanExample) {
    return {std::make_shared<const PmeanExample>(replicas), nullptr};
  }
  throw ValueError(str("load_data: there is no data set '", options.name, "'",
                       did_you_mean(options.name, data_names()), "; there are ",
                       join(data_names())));
}

}  // namespace lockstep
