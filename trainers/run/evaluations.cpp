#include "trainers/run/evaluations.h"

#include <cmath>

#include "framework/base/text.h"

namespace lockstep {
namespace {

const std::string kLossName = "loss";

}  // namespace

void Evaluations::owe(const std::string& set) {
  if (set == kTestSet ? data_.test : data_.validation) owed_.insert(set);
}

void Evaluations::owe_both() {
  owe(kValidationSet);
  owe(kTestSet);
}

bool Evaluations::note(const std::string& set, const Figures& figures, std::int64_t step) {
  const bool was_owed = owed_.erase(set) > 0;
  last_[set] = {figures, step};
  if (set != kValidationSet || !was_owed) return false;
  ++patience_.evaluations;
  const std::optional<double> best = better(figures, patience_.best);
  if (best) patience_ = {.best = best, .step = step};
  return best.has_value();
}

Figures Evaluations::of(const std::string& set, std::int64_t step) const {
  const Last& last = last_.at(set);
  return last.step == step ? last.figures : Figures();
}

std::optional<BestStep> Evaluations::best() const {
  if (!patience_.best) return std::nullopt;
  return BestStep{.step = patience_.step, .validation = {{deciding_metric(), *patience_.best}}};
}

std::optional<double> Evaluations::better(const Figures& figures,
                                          std::optional<double> than) const {
  const double value = figures.at(deciding_metric());
  const bool higher = objective_.metric(deciding_metric()).higher_is_better();
  const bool is_better =
      std::isfinite(value) && (!than || (higher ? value > *than : value < *than));
  return is_better ? std::optional(value) : std::nullopt;
}

bool Evaluations::are_without_progress() const {
  return config_.trainer.patience && patience_.evaluations >= *config_.trainer.patience;
}

std::string Evaluations::progress_text() const {
  return str(kValidationSet, " ", deciding_metric(), " was ",
             patience_.best ? str("not better than ", *patience_.best) : "no number", " in ",
             counted(patience_.evaluations, "evaluation"));
}

void Evaluations::add_to(CheckpointInfo& info) const {
  for (const auto& [set, last] : last_) {
    for (const auto& [name, value] : last.figures) info.figures[prefix_of(set) + name] = value;
    if (!last.figures.empty()) info.counts[prefix_of(set) + kStepCounts] = last.step;
  }
  for (const std::string& set : owed_) info.counts[kOwesCounts + set] = 1;
  if (patience_.best) info.figures[kPatienceFigures + deciding_metric()] = *patience_.best;
  info.counts[kPatienceCount] = patience_.evaluations;
  if (patience_.step > 0) info.counts[kPatienceStepCount] = patience_.step;
  info.texts[kPatienceText] = deciding_metric();
}

void Evaluations::go_on(const CheckpointInfo& info) {
  for (auto& [set, last] : last_) {
    if (info.counts.contains(kOwesCounts + set)) owe(set);
    last.step = entry_of(info.counts, prefix_of(set) + kStepCounts).value_or(0);
  }
  for (const auto& [name, value] : info.figures) {
    if (name == kPatienceFigures + deciding_metric()) patience_.best = value;
    for (auto& [set, last] : last_) {
      const std::string& prefix = prefix_of(set);
      if (name.starts_with(prefix)) last.figures[name.substr(prefix.size())] = value;
    }
  }
  if (entry_of(info.texts, kPatienceText) != deciding_metric()) return;  // another begins anew
  patience_.evaluations = entry_of(info.counts, kPatienceCount).value_or(0);
  patience_.step = entry_of(info.counts, kPatienceStepCount).value_or(0);
}

const std::string& Evaluations::deciding_metric() const {
  return config_.checkpoint.best != "none" ? config_.checkpoint.best : kLossName;
}

}  // namespace lockstep
