#pragma once

#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/base/non_copyable.h"

namespace lockstep {

/// A part of one tensor of a training's state. A tensor's name is
///
///   parameters/NAME           a parameter; a ZeroTrainer's of half types in float32
///   buffers/NAME              a module's buffer
///   optimizer/exp_avg/NAME    the optimizer's tensors for a parameter, as torch.optim calls them
///   optimizer/step/NAME       updates of a parameter
///   ema/NAME                  the average of a parameter: ZeroOptions::ema_decay
///   ema_updates               updates that the averages have seen, if they warm up
///   residuals/REPLICA/NAME    what compression has left out on a replica
///   steps                     steps done
struct StatePiece {
  std::string name;
  std::vector<std::int64_t> shape;  ///< of the whole tensor
  std::int64_t offset;              ///< of this part, in elements of the whole in row-major order
  at::Tensor values;                ///< the part: contiguous, one dimension
};

/// Called with each piece. `values` may share the training's memory: they last for the call.
using VisitState = std::function<void(const StatePiece& piece)>;

/// Where a training's state is restored from.
class StateSource : private NonCopyable {
 public:
  virtual ~StateSource() = default;

  /// Whether there is a tensor of this name.
  [[nodiscard]] virtual bool has(const std::string& name) const = 0;
  /// Fills `piece.values`. False if there is no such tensor, or one of another shape or dtype: the
  /// values stay as they are. Throws if the tensor can't be read or made.
  virtual bool read(const StatePiece& piece) const = 0;
};

/// A training whose state can be saved and restored: ZeroTrainer, DataParallel, ShardedOptimizer.
/// Checkpoints (checkpoint.h) are made of these two calls.
class Stateful : private NonCopyable {
 public:
  virtual ~Stateful() = default;

  /// Calls `visit` with this replica's part of the state. The parts of all replicas together are
  /// the whole state, each element once. Nothing is gathered. Between steps. All replicas together.
  virtual void visit_state(const VisitState& visit,
                           std::source_location where = std::source_location::current()) = 0;
  /// Reads all of the state that this replica keeps from `source`, which must be alike on all
  /// replicas. It may have been saved by another number of replicas, at another stage. Between
  /// steps. All replicas together. If it throws, the training is of no use.
  virtual void restore_state(const StateSource& source,
                             std::source_location where = std::source_location::current()) = 0;
};

/// A training under a name, for a checkpoint of several whose tensors have the same names: those of
/// this one begin with `name`/. The training must live as long.
///
///   NamedTraining g("generator", generator);
///   NamedTraining d("discriminator", discriminator);
///   save_checkpoint("checkpoints", {&g, &d}, {.step = generator.steps()});
class NamedTraining final : public Stateful {
 public:
  NamedTraining(const std::string& name, Stateful& training)
      : prefix_(name + "/"), training_(training) {}

  void visit_state(const VisitState& visit,
                   std::source_location where = std::source_location::current()) override;
  void restore_state(const StateSource& source,
                     std::source_location where = std::source_location::current()) override;

 private:
  std::string prefix_;
  Stateful& training_;
};

namespace training {

// How names of the state's tensors begin.
inline const std::string kParameters = "parameters/";
inline const std::string kBuffers = "buffers/";
inline const std::string kOptimizer = "optimizer/";
inline const std::string kOptimizerStep = kOptimizer + "step/";
inline const std::string kAverages = "ema/";
inline const std::string kAverageUpdates = "ema_updates";
inline const std::string kResiduals = "residuals/";
inline const std::string kSteps = "steps";

/// Visits this replica's shard() of a tensor that all replicas of the axis hold alike.
void visit_shard(const std::string& name, const at::Tensor& tensor, const AxisNames& axis_name,
                 const VisitState& visit);
/// Visits a whole tensor.
void visit_whole(const std::string& name, const at::Tensor& tensor, const VisitState& visit);
/// Reads a whole tensor, in place. False as StateSource::read().
bool restore_whole(const std::string& name, const at::Tensor& tensor, const StateSource& source);

/// The same for one number: a tensor without dimensions.
void visit_number(const std::string& name, std::int64_t number, const VisitState& visit);
void restore_number(const std::string& name, std::int64_t& number, const StateSource& source);

}  // namespace training
}  // namespace lockstep
