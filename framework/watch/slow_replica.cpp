#include "framework/watch/slow_replica.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "framework/base/text.h"

namespace lockstep::watch {
namespace {

// A replica that takes so much longer than the others makes steps longer by this part.
constexpr double kSlow = 0.1;
// … and in this part of the steps. Of two that are alike one is so by chance once in
// 1,000 hundreds of steps.
constexpr double kMostly = 2.0 / 3;

constexpr auto kOwn = &std::pair<const int, double>::second;

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
  // How much longer its own work takes than that of the slowest of the others.
  const double more = median_of(mapped(steps, [replica = replica](const StepPace& step) {
    std::map<int, double> others = step.own;
    const auto own = others.extract(replica);
    return (own ? own.mapped() : 0.0) - std::ranges::max_element(others, {}, kOwn)->second;
  }));
  const double total = median_of(mapped(steps, &StepPace::total));
  if (!(more > kSlow * total)) return std::nullopt;
  return SlowReplica{
      .replica = replica, .seconds_a_step = more, .share = more / total, .steps = count};
}

}  // namespace lockstep::watch
