#include "trainers/check_job.h"

#include <cstdint>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

// Microbatches without a sample cost as much as others: far too many of them look like a hang.
void check_accumulate(const Config& config, const DataSets& data) {
  const std::int64_t accumulate = config.trainer.accumulate;
  const std::int64_t replicas = config.parallel.replicas;
  const std::int64_t samples = data.train->size();
  if (accumulate == 1 || accumulate * replicas <= samples) return;
  throw ValueError(
      str("trainer.accumulate: times parallel.replicas it must be at most the training "
          "set's samples, of which there are ",
          samples, "; is ", accumulate, " times ", replicas));
}

}  // namespace

void check_job(const Config& config, const DataSets& data) {
  check_accumulate(config, data);
}

}  // namespace lockstep
