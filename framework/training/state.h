#pragma once

#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/base/non_copyable.h"
#include "framework/base/range.h"

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

/// Where a state's pieces go when it is saved, and come from when it is restored: who has some
/// lists them once for both. A replica restores all that it keeps, and saves its part of that.
class StateArchive {
 public:
  explicit StateArchive(const VisitState& visit) : visit_(&visit) {}
  explicit StateArchive(const StateSource& source) : source_(&source) {}

  [[nodiscard]] bool restores() const noexcept { return source_ != nullptr; }
  /// Whether what is restored from has a tensor of this name.
  [[nodiscard]] bool has(const std::string& name) const { return source_->has(name); }

  /// A part of a tensor, of which this replica saves the elements `saved`. False as
  /// StateSource::read(), and never while the state is saved.
  bool part(const StatePiece& piece, const Range& saved) const;
  bool part(const StatePiece& piece) const { return part(piece, {0, piece.values.numel()}); }
  /// A whole tensor, in place.
  void whole(const std::string& name, const at::Tensor& tensor) const {
    all(name, tensor, {0, tensor.numel()});
  }
  /// The same that all replicas of the axis hold alike: each saves its shard().
  void alike(const std::string& name, const at::Tensor& tensor, const AxisNames& axis_name) const;
  /// The same of one number, a tensor without dimensions, which this replica saves if it `saves`.
  void number(const std::string& name, std::int64_t& number, bool saves = true) const;

 private:
  void all(const std::string& name, const at::Tensor& tensor, const Range& saved) const;

  const VisitState* visit_ = nullptr;
  const StateSource* source_ = nullptr;
};

/// A training whose pieces of state are listed once.
class ArchivedState : public Stateful {
 public:
  void visit_state(const VisitState& visit,
                   std::source_location where = std::source_location::current()) final {
    archive_state(StateArchive(visit), where);
  }
  void restore_state(const StateSource& source,
                     std::source_location where = std::source_location::current()) final {
    archive_state(StateArchive(source), where);
  }

 private:
  virtual void archive_state(const StateArchive& archive, std::source_location where) = 0;
};

}  // namespace training
}  // namespace lockstep
