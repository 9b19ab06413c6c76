#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "trainers/config/config.h"
#include "trainers/run/data_record.h"

namespace lockstep {

// What train's checkpoints say beside the tensors: counts, figures and texts.
inline const std::string kSamplesCount = "samples";
inline const std::string kSkippedCount = "skipped_steps";
inline const std::string kThreadsCount = "threads_per_replica";
// How LibTorch's operators are mended. 2: convolutions (safe_convolutions.h); less is not read. 3:
// half sums are float32's, too (float32_sums.h).
inline const std::string kSafeConvolutionsCount = "safe_convolutions";
inline constexpr std::int64_t kLeastSafeConvolutions = 2;
inline constexpr std::int64_t kSafeConvolutions = 3;
inline const std::string kBestCount = "best_step";
inline const std::string kElapsedFigure = "elapsed_s";
inline const std::string kLossFigure = "loss";
// Of the steps that the next line of metrics is about: their losses' sum, and how many had a finite
// one. Not there: none.
inline const std::string kLossSumFigure = "loss_sum";
inline const std::string kLossStepsCount = "loss_steps";
inline const std::string kBestFigures = "best_";
inline const std::string kEvalFigures = "eval_";  // of the test set
inline const std::string kValidationFigures = "validation_";
inline const std::string kTestBestFigures = "test_best_";  // of the test set, by the best weights
// Behind the beginning of a set's figures: the step that they are of.
inline const std::string kStepCounts = "step";
inline const std::string kPatienceFigures = "patience_";
inline const std::string kPatienceCount = "patience";
inline const std::string kPatienceStepCount = "patience_step";  // of the best figure
inline const std::string kPatienceText = "patience_metric";     // the figure by which it counts
// And the set's name: an evaluation of the checkpoint's step is still to come. 1, or not there.
inline const std::string kOwesCounts = "owes_";
inline const std::string kOwesBestFigure = "owes_best";  // its step's checkpoint is to be the best
inline const std::string kConfigText = "config";
inline const std::string kVersionsText = "versions";
inline const std::string kWaivedText = "waived";
inline const std::string kSetsText = "sets";      // see data_record.h
inline const std::string kFittedText = "fitted";  // see data_record.h
// The checkpoint's part of the run's files: the lines of its step in metrics.jsonl, and where its
// event file ended.
inline const std::string kMetricsText = "metrics";
inline const std::string kEventFileText = "event_file";

/// Where a run goes on.
struct ResumePoint {
  std::filesystem::path checkpoint;
  CheckpointInfo info = {};
  /// Keys with another value, "parallel.replicas was 4, is 2", and what has become of data.
  std::vector<std::string> changes = {};
  /// Why the run need not end with the bits of one that was not interrupted, a line each.
  std::string waived = {};
  bool with_changes = false;  ///< those that change what is computed are allowed
  /// The config leaves the number of math threads open: it is the checkpoint's.
  bool keeps_threads = false;
  /// By what its data are read (DataContext::fitted). None if keys of data have changed that change
  /// what is computed: then it is fitted anew.
  std::optional<Fitted> fitted = {};
};

/// Adds to `waived`, after a step, if it has added up halves in float32, but the checkpoint's run
/// had not. Returns that reason; "" if there is none.
[[nodiscard]] std::string waive_half_sums(ResumePoint& point);

/// What the checkpoint says. DataError if it does not, and for a number below 0 or above 2^53.
[[nodiscard]] std::int64_t count_of(const ResumePoint& point, const std::string& name);

/// The folder of a run's checkpoints.
[[nodiscard]] std::filesystem::path checkpoints_of(const std::filesystem::path& output);

/// The output folder of the run that has saved `checkpoint`; empty if it is not in one.
[[nodiscard]] std::filesystem::path run_of_checkpoint(const std::filesystem::path& checkpoint);

/// Lockstep, LibTorch and BLAS.
[[nodiscard]] std::string versions_text();

/// The config of the run that has saved a checkpoint, with its number of math threads; `overrides`
/// win. DataError if it is no checkpoint of train, or one of a Lockstep that is too old;
/// ValueError, as of a config, and, naming them, if it has parts of another program's own.
[[nodiscard]] Config config_of_checkpoint(const std::filesystem::path& checkpoint,
                                          const CheckpointInfo& info,
                                          const std::vector<keys::Override>& overrides = {});

/// The same as it is recorded: math threads that were left open stay so.
[[nodiscard]] Config config_in_checkpoint(const std::filesystem::path& checkpoint,
                                          const CheckpointInfo& info,
                                          const std::vector<keys::Override>& overrides = {});

/// The config as a run's files and checkpoints have it: math threads that it has left open and that
/// are `point`'s (nullptr: the run begins) stay open, so that each run that goes on says so.
[[nodiscard]] std::string written(Config config, const ResumePoint* point);

/// The checkpoint that `--resume` names: its folder, or with "auto" the newest whole one in
/// `output`, if there is one; "" names none. DataError if the named one is damaged.
[[nodiscard]] std::optional<std::filesystem::path> find_checkpoint(
    const std::string& resume, const std::filesystem::path& output);

/// Where a run goes on that has this checkpoint of find_checkpoint(). ValueError, naming keys and
/// both values, if `config` changes keys that changeable_keys() lacks, unless `with_changes`. Math
/// threads that the config leaves open become the checkpoint's.
[[nodiscard]] ResumePoint resume_point(const std::filesystem::path& checkpoint, bool with_changes,
                                       Config& config);

/// Both.
[[nodiscard]] std::optional<ResumePoint> find_resume_point(const std::string& resume,
                                                           const std::filesystem::path& output,
                                                           bool with_changes, Config& config);

/// ValueError, naming the sets and both sizes, if the data that were loaded, `sets`, are not those
/// of the run that saved the checkpoint, by their fingerprints, unless `point.with_changes`. Then
/// they are among its changes.
void check_data(ResumePoint& point, const SetRecords& sets);

}  // namespace lockstep
