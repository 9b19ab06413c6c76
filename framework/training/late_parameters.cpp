#include "framework/training/late_parameters.h"

#include <algorithm>

namespace lockstep::training {

LateParameters::LateParameters(const ModuleParameters& module, FlatParameters& parameters,
                               collectives::AxisQueue& queue)
    : parameters_(parameters), queue_(queue) {
  const std::vector<tree::FlatBucket>& buckets = parameters.layout().buckets();
  for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    is_late_.push_back(std::ranges::all_of(
        buckets[bucket].items, [&](std::size_t item) { return module.block_of[item] != 0; }));
    for (const std::size_t item : buckets[bucket].items) {
      if (!is_late_.back()) break;
      const auto block = static_cast<std::size_t>(module.block_of[item] - 1);
      std::vector<std::size_t>& own = buckets_of_[module.blocks[block]];
      if (own.empty() || own.back() != bucket) own.push_back(bucket);
    }
  }
}

at::Tensor LateParameters::run(Block& block, const at::Tensor& input, const BlockForward& forward) {
  for (const std::size_t bucket : buckets_of_[&block]) parameters_.gather(bucket, queue_);
  return forward(input);
}

void LateParameters::wait_for_all() {
  for (std::size_t bucket = is_late_.size(); bucket-- > 0;) parameters_.gather(bucket, queue_);
}

}  // namespace lockstep::training
