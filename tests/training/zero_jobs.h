#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/base/logging.h"
#include "framework/base/non_copyable.h"
#include "framework/collectives/axis_index.h"
#include "framework/launch/launch.h"
#include "framework/training/zero.h"
#include "tests/catch.h"
#include "tests/training/models.h"

namespace lockstep::testing {

using Parameters = std::map<std::string, at::Tensor>;

inline constexpr std::int64_t kBatch = 3;  // samples a replica and microbatch
inline constexpr double kRate = 0.01;

/// Adam with clipping, at a stage, over an axis.
[[nodiscard]] ZeroOptions adam(int stage, const AxisNames& axis = "data");

/// One step on the part of the global batch that is this replica's.
StepReport train_step(ZeroTrainer& trainer, OddModel& model, std::int64_t step,
                      std::int64_t microbatches, const AxisNames& axis);

/// What `train` returns on each replica of a job in threads, which ends well,
template <typename Train>
[[nodiscard]] auto results_of_job(const LaunchOptions& job, const Train& train) {
  std::vector<decltype(train())> results(static_cast<std::size_t>(job.replicas));
  const int status =
      launch([&] { results[static_cast<std::size_t>(axis_index("data"))] = train(); }, job);
  REQUIRE(status == 0);
  return results;
}
/// and on replica 0.
template <typename Train>
[[nodiscard]] auto result_of_job(const LaunchOptions& job, const Train& train) {
  return results_of_job(job, train)[0];
}

/// The tensors by name that `train` returns on all replicas of a map over "i", which agree.
[[nodiscard]] Parameters result_of_map(std::int64_t replicas,
                                       const std::function<Parameters()>& train);

/// The parameters after five steps of an OddModel with `large`: what replica 0 ends with, as
/// threads of a map, whose replicas must agree,
[[nodiscard]] Parameters trained_in_pmap(std::int64_t replicas, ZeroOptions options,
                                         std::int64_t large = 37);
/// and the same as threads of a job.
[[nodiscard]] Parameters trained_in_job(const LaunchOptions& launch_options,
                                        const ZeroOptions& options, std::int64_t large = 37);

/// Copies of what visit_parameters() shows.
[[nodiscard]] Parameters visited_parameters(ZeroTrainer& trainer);

/// What this replica has of a training's state whose names begin with `kind`: by the rest of the
/// name and the offset.
using Pieces = std::map<std::pair<std::string, std::int64_t>, at::Tensor>;
[[nodiscard]] Pieces state_pieces(Stateful& training, const std::string& kind = "");
/// Throws unless both have the same bits.
void expect_same_pieces(const Pieces& actual, const Pieces& expected);

/// A job in threads.
[[nodiscard]] LaunchOptions threads(std::int64_t replicas, Backend backend,
                                    std::int64_t workers = 0);

/// Nothing but warnings and errors is logged while it lives.
class Quiet : private NonCopyable {
 public:
  Quiet() { set_quiet(true); }
  ~Quiet() { set_quiet(false); }
};

}  // namespace lockstep::testing
