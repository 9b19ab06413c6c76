#include "trainers/report/figures.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "framework/base/number_text.h"
#include "framework/objectives/cross_entropy.h"
#include "framework/objectives/metric.h"

namespace lockstep::report {
namespace {

const std::string kLoss = "loss";
// How the names of the evaluations' figures begin.
const std::string kValidation = "validation_", kTest = "test_", kTestBest = "test_best_";

bool is_metric(const std::string& name) {
  constexpr std::string_view kTop = "top_";
  if (name.starts_with(kTop)) {
    return parse_number<std::int64_t>(std::string_view(name).substr(kTop.size())).value_or(0) > 0;
  }
  return std::ranges::count(metric_registry().names(), name) > 0;
}

}  // namespace

bool is_figure(const std::string& name) {
  return name == kLoss || name.starts_with(kValidation) || name.starts_with(kTest);
}

std::optional<bool> higher_is_better(const std::string& figure) {
  for (const std::string& prefix : {std::string(), kValidation, kTestBest, kTest}) {
    const std::string metric = figure.substr(std::min(prefix.size(), figure.size()));
    if (!figure.starts_with(prefix) || !is_metric(metric)) continue;
    return make_metric(metric, make_cross_entropy({}))->higher_is_better();
  }
  return std::nullopt;
}

std::vector<Figure> figures_of(const RunRecord& run) {
  std::vector<Figure> figures;
  const auto add = [&](const std::string& name, const SeriesSummary& series) {
    Figure figure{.name = name, .last = series.last, .best = {}};
    const std::optional<bool> is_higher = higher_is_better(name);
    if (is_higher) figure.best = *is_higher ? series.greatest : series.least;
    figures.push_back(figure);
  };
  const auto add_all = [&](const std::string& prefix) {
    for (const auto& [name, series] : run.series) {
      const bool is_of_best = name.starts_with(kTestBest) && prefix != kTestBest;
      if (name.starts_with(prefix) && !is_of_best) add(name, series);
    }
  };
  if (const auto loss = run.series.find(kLoss); loss != run.series.end()) add(kLoss, loss->second);
  add_all(kValidation);
  add_all(kTest);
  add_all(kTestBest);
  return figures;
}

const Figure* find_figure(const std::vector<Figure>& figures, const std::string& name) {
  const bool is_of_training = name == "train_" + kLoss;
  const std::string metric = is_of_training ? kLoss : name;
  for (const std::string& prefix : {kValidation, kTest, std::string()}) {
    if (is_of_training && !prefix.empty()) continue;
    const auto found = std::ranges::find(figures, prefix + metric, &Figure::name);
    if (found != figures.end()) return &*found;
  }
  return nullptr;
}

std::optional<double> samples_per_s(const RunRecord& run) {
  const auto series = run.series.find("samples_per_s");
  return series == run.series.end() ? std::nullopt : series->second.mean();
}

std::int64_t resumes_of(const RunRecord& run) {
  const auto series = run.series.find("resumed_after");
  return series == run.series.end() ? 0 : series->second.points;
}

std::string parameters_sha256(const RunRecord& run) {
  const auto sha256 = run.result.find("parameters_sha256");
  return sha256 != run.result.end() && sha256->is_string() ? sha256->get<std::string>() : "";
}

}  // namespace lockstep::report
