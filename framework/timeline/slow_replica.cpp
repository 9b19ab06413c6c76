#include "framework/timeline/slow_replica.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "framework/base/text.h"

namespace lockstep::timeline {
namespace {

// A slow replica makes the median step longer by more than this part …
constexpr double kSlow = 0.1;
// … and is the slowest in more than this part of the steps. By chance, one of two like replicas is
// so once in 1,000 hundreds of steps.
constexpr double kMostly = 2.0 / 3;

constexpr auto kOwn = &std::pair<const int, double>::second;

double longest_own(const StepPace& step) {
  return step.own.empty() ? 0 : std::ranges::max_element(step.own, {}, kOwn)->second;
}

}  // namespace

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

std::optional<SlowReplica> slow_replica(const std::vector<StepPace>& steps) {
  std::map<int, std::int64_t> slowest;  // by replica, in so many steps
  for (const StepPace& step : steps) {
    if (step.own.size() < 2) return std::nullopt;
    ++slowest[std::ranges::max_element(step.own, {}, kOwn)->first];
  }
  if (slowest.empty()) return std::nullopt;
  const auto [replica, count] =
      *std::ranges::max_element(slowest, {}, &std::pair<const int, std::int64_t>::second);
  if (static_cast<double>(count) <= kMostly * static_cast<double>(steps.size()))
    return std::nullopt;
  // Its own work takes so much longer than that of the slowest of the others.
  const double more = median_of(mapped(steps, [replica = replica](const StepPace& step) {
    double its = 0;
    double others = 0;
    for (const auto& [each, own] : step.own) {
      double& most = each == replica ? its : others;
      most = std::max(most, own);
    }
    return its - others;
  }));
  const double total = median_of(mapped(steps, &StepPace::total));
  if (!(more > kSlow * total)) return std::nullopt;
  return SlowReplica{
      .replica = replica, .seconds_a_step = more, .share = more / total, .steps = count};
}

double waiting_share(const std::vector<StepPace>& steps) {
  double waited = 0;
  double total = 0;
  for (const StepPace& step : steps) {
    const double longest = longest_own(step);
    for (const auto& [replica, own] : step.own) {
      waited += longest - own;
      total += step.total;
    }
  }
  return total > 0 ? waited / total : 0;
}

std::map<int, ReplicaWork> replica_work(std::span<const StepPace> steps) {
  std::map<int, std::pair<std::vector<double>, std::vector<double>>> all;  // own and waiting
  for (const StepPace& step : steps) {
    const double longest = longest_own(step);
    for (const auto& [replica, own] : step.own) {
      all[replica].first.push_back(own);
      all[replica].second.push_back(longest - own);
    }
  }
  std::map<int, ReplicaWork> work;
  for (const auto& [replica, its] : all) {
    work[replica] = {.own = median_of(its.first), .waiting = median_of(its.second)};
  }
  return work;
}

double OwnWork::next(const Recorder::Track* track) {
  if (track == nullptr) return 0;
  const Recorder::Recording recent = track->read(after_, Recorder::Names::left_out);
  const std::uint64_t now = recorder_now();
  std::uint64_t own = now - last_;
  std::uint64_t until = last_;  // the end of the time counted so far
  for (const Recorder::Span& span : recent.spans) {
    if (!is_call(span.kind) || span.end <= until) continue;
    own -= span.end - std::max(span.begin, until);
    until = span.end;
  }
  const bool is_first = last_ == 0;
  last_ = now;
  after_ = recent.begun;
  return is_first ? 0 : 1e-9 * static_cast<double>(own);
}

}  // namespace lockstep::timeline
