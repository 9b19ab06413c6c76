#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "framework/training/trained_module.h"

namespace torch::nn {
class Module;
}

namespace lockstep::training {

/// What LibTorch's own operators draw on the CPU without a Generator (torch::nn::Dropout, the one
/// in TransformerEncoder and LSTM, torch::rand(), …) in the thread of a replica that trains: each
/// draw has a generator of its own, at::detail::createCPUGenerator(key.bits()), of the key
///
///   Key(seed).fold("torch").fold(step).fold(microbatch)
///       .fold(operator).fold(numbers).fold(trains).fold(replica).fold(call)
///
/// The operator is the one that LibTorch's CPU kernels have, as "aten::bernoulli_", `numbers` how
/// many elements its first tensor has, `trains` whether the module is in training mode, and `call`
/// counts, from 0, what has the same key so far. So threads share nothing, other draws do not move
/// these, and those of an evaluation none of training. With several trainers alive the last one's
/// seed counts, and of all the places, the modes (`trains`) and the replicas are folded, in the
/// order in which they were made: who evaluates one network moves no draw of another's training.
/// LibTorch's generator takes only the lower 32 bits of a key: of 100,000 draws of one operator
/// about one pair has the same numbers.
///
/// The replica is left out where replicas must have the same: of what is drawn into parameters
/// (leaves that require a gradient, as torch::nn::init does), in ZeroTrainer::edit_parameters(),
/// and of permutations ("aten::randperm"), of which each may take its part.
///
/// A block that is recomputed draws the same again (run_record.h). Elsewhere (outside of trainers,
/// in other threads, in maps inside the replica, in a SeededInitialization or an Initialize) they
/// draw from LibTorch's process-wide generator as they always do. So they do in a replica whose
/// program has given that generator another seed since its last trainer was made:
/// torch::manual_seed() counts.

/// A trainer's position, by which this thread's draws are keyed while the result lives. `module` is
/// what it trains, or nullptr, and lives as long.
[[nodiscard]] std::shared_ptr<TrainerPosition> key_draws(TrainerPosition position,
                                                         const torch::nn::Module* module);

/// Does nothing, but a program that calls this links the operators that draw so.
void keep_draws_keyed();

/// What keys this thread's draws have: the replica's, those of all replicas, or none.
enum class DrawKeys { own, alike, none };
inline constinit thread_local DrawKeys draw_keys = DrawKeys::own;

/// Counts the draws of data sets from LibTorch's process-wide generator.
inline constinit std::atomic<std::uint64_t> draws_of_data = 0;

/// What SeededInitialization tells about itself.
struct Seeding {
  inline static constinit thread_local int here = 0;  ///< of this thread, how many live
  /// While one lives in any thread: the generator's seed otherwise. Guarded by its mutex.
  inline static std::optional<std::uint64_t> outer_seed;
};

}  // namespace lockstep::training
