#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "framework/base/non_copyable.h"
#include "framework/data/data.h"
#include "framework/engines/whereabouts.h"
#include "framework/telemetry/summary_writer.h"
#include "framework/training/zero.h"
#include "models/model.h"
#include "trainers/config/config.h"
#include "trainers/run/data_record.h"
#include "trainers/run/evaluate.h"
#include "trainers/run/resume.h"

namespace lockstep {

class Trainer;

/// A step that has ended.
struct StepEnd {
  std::int64_t step = 0;  ///< counted from 1
  std::int64_t samples =
      0;          ///< of all replicas, since the run began, with those that drop_last leaves out
  double lr = 0;  ///< of its update: the schedule's after step - 1 steps
  double gradient_norm = 0;  ///< before clipping
  bool skipped = false;      ///< a gradient or loss was not finite; nothing has changed
  /// Of all replicas, in this step alone; only in steps that are logged, or that need it.
  std::optional<double> loss;
  std::int64_t replica = 0;  ///< the one that is told, alike but for this
};

/// The figures of a data set after a step.
struct Evaluation {
  std::int64_t step = 0;
  std::string set;  ///< kValidationSet or kTestSet
  Figures figures;
  bool is_best = false;  ///< the validation set's figure is the best so far
  ParameterValues weights = ParameterValues::trained;  ///< that have these figures
};

/// Functions of a program's own that a Trainer calls, in each replica, all alike: they may use
/// collectives over the config's axis. Replicas that are threads share what a function holds, and
/// may call it at one time: let one of them write. Parameters have their values while
/// trainer.zero().whole_parameters() lives; over a network not always otherwise. The model is in
/// the mode in which it trains, and gradients are recorded: what a callback changes of modes, of
/// requires_grad and of GradMode is set back when it returns, with one warning, but for parts of
/// the model that before_first_step sets. What a callback throws ends the job, with the step's
/// state saved.
struct Callbacks {
  std::function<void(Trainer& trainer)> before_first_step{};
  std::function<void(Trainer& trainer, const StepEnd& step)> after_step{};
  std::function<void(Trainer& trainer, const Evaluation& evaluation)> after_evaluation{};
  /// Whether after_step is to have the loss of this step, which is counted from 1, though it is not
  /// logged. The same on all replicas. None: no such step.
  std::function<bool(std::int64_t step)> needs_loss{};
};

/// A run's output and its beginning.
struct RunOptions {
  std::filesystem::path output;  ///< the folder, claimed for this run
  bool quiet = false;            ///< no progress, no summary
  /// The run ends after this step, if not before: with what comes at a run's end, but its schedule
  /// is the whole run's, and one that goes on ends as if it had not stopped. 0: at its own end.
  std::int64_t stop_after = 0;
  std::optional<ResumePoint> resume = {};  ///< where it goes on, after check_data() of resume.h;
                                           ///< its `fitted` is DataContext's for load_data()
  /// What checkpoints say of the data: records_of(). None: replica 0 takes the records while the
  /// others wait.
  SetRecords sets = {};
  engines::Whereabouts where = {};  ///< what has started the job, for result.json and its stops
  Callbacks callbacks = {};
};

/// Trains a model as a config says: steps over the data, evaluations, checkpoints, metrics and the
/// result. For each replica of launch(), with config.launch.axis_name bound; replica 0 writes into
/// the output folder and to stdout, all write checkpoints. `train` is a caller of it
/// (train_main.h).
///
///   check_job(config, data);  // check_job.h: refuses what would fail on the way, or do nothing
///   launch([&] { Trainer(config, data, {.output = output}).run(); }, config.launch);
///
/// One thread; all replicas call everything together.
class Trainer : private NonCopyable {
 public:
  /// Makes the model, with its weights or those of the checkpoint. `config` and `data` must live as
  /// long. Throws DataError if the checkpoint does not fit, ValueError as the model and the loss
  /// do, and for another number of replicas than the config's.
  Trainer(const Config& config, const DataSets& data, RunOptions options);
  ~Trainer();

  /// Trains to the end. If stop_requested(), ends after a step, with a checkpoint if the config
  /// saves any. Throws Error if something can't be written, or if the loss is not finite and the
  /// config says to stop then. Whatever is thrown, if the config saves any checkpoints, the state
  /// after the last step that all replicas have finished is saved first, or the error says in its
  /// last line why it can't be. To be called once.
  void run();

  /// For callbacks: the run ends after this step, as if it were the last of the config. One that is
  /// resumed goes on.
  void end_after_step();

  [[nodiscard]] const Config& config() const;
  [[nodiscard]] Model& model();
  [[nodiscard]] ZeroTrainer& zero();
  /// The writer of the run's event files, for TensorBoard; nullptr on other replicas than 0, and
  /// where the config says telemetry.tensorboard: false.
  [[nodiscard]] SummaryWriter* summary();

 private:
  class Run;
  std::unique_ptr<Run> run_;
};

}  // namespace lockstep
