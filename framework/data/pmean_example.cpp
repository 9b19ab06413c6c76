#include "framework/data/pmean_example.h"

#include <ATen/ops/empty.h>

#include "framework/base/text.h"

namespace lockstep {
namespace {

constexpr std::int64_t kSamplesPerReplica = 4;
// 2x + 0.5 is exact in float32's 24 bits up to x = 2^22 - 1.
constexpr std::int64_t kMostReplicas = std::int64_t{1} << 20;

}  // namespace

PmeanExample::PmeanExample(std::int64_t replicas) {
  require(replicas >= 1 && replicas <= kMostReplicas, "pmean_example: replicas is ", replicas,
          ", but must be 1 ... ", kMostReplicas);
  size_ = kSamplesPerReplica * replicas;
}

Batch PmeanExample::gather(std::span<const std::int64_t> indices) const {
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

}  // namespace lockstep
