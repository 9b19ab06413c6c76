#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainers/report/run_record.h"

namespace lockstep::report {

/// Whether higher is better of a figure, such as "loss", "validation_accuracy" or "test_best_f1",
/// as its metric says; none for what no metric of metric_registry() is the figure of.
[[nodiscard]] std::optional<bool> higher_is_better(const std::string& figure);

/// Whether a number of a line of metrics is a figure: the training's loss, or one of evaluations.
[[nodiscard]] bool is_figure(const std::string& name);

/// What a run came to by one figure.
struct Figure {
  std::string name;                ///< "loss", "validation_accuracy", "test_loss", "test_best_loss"
  Point last = {};                 ///< the last time that it was measured
  std::optional<Point> best = {};  ///< the first of equal ones; none where its metric is unknown
};

/// The training's loss and the figures of its evaluations: of the validation set, of the test set
/// and, by the best step's weights, of the test set once more.
[[nodiscard]] std::vector<Figure> figures_of(const RunRecord& run);

/// The figure that is meant by a name: for a metric, "loss" among them, that of the validation set,
/// or else of the test set, and for other names the one that is called so; "train_loss" is the
/// training's. nullptr if there is none.
[[nodiscard]] const Figure* find_figure(const std::vector<Figure>& figures,
                                        const std::string& name);

/// The mean of the run's samples_per_s, over all replicas; none before it has logged one.
[[nodiscard]] std::optional<double> samples_per_s(const RunRecord& run);

/// How often the run has gone on from a checkpoint, as far as it has logged something since.
[[nodiscard]] std::int64_t resumes_of(const RunRecord& run);

/// parameters_sha256 of the result; "" before there is one.
[[nodiscard]] std::string parameters_sha256(const RunRecord& run);

}  // namespace lockstep::report
