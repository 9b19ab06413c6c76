#include "framework/timeline/slow_link.h"

#include <algorithm>
#include <utility>

#include "framework/base/text.h"

namespace lockstep::timeline {
namespace {

// A link with fewer rates has no known rate.
constexpr std::size_t kFewRates = 10;
// Links on one switch differ by less, even where a machine is busy.
constexpr double kSlowRate = 1.0 / 3;
// A link that makes steps longer by less is not named.
constexpr double kSlowLink = 0.1;

}  // namespace

void add_rates(const std::vector<ReplicaRecording>& recordings, int host, LinkRates& rates) {
  for (const ReplicaRecording& recording : recordings) {
    for (const auto& track : recording.tracks) {
      for (const Recorder::Span& span : track.spans) {
        if (span.kind != SpanKind::transfer || span.end <= span.begin) continue;
        const double seconds = 1e-9 * static_cast<double>(span.end - span.begin);
        rates[{static_cast<int>(span.id), host}].push_back(static_cast<double>(span.bytes) /
                                                           seconds);
      }
    }
  }
}

ToldRate IncomingRates::next(const Recorder::Track* track, int host) {
  if (track == nullptr) return {};
  ReplicaRecording recent;
  recent.tracks.push_back(track->read_beside("network", after_, Recorder::Names::left_out));
  for (const Recorder::Span& span : recent.tracks[0].spans) {
    if (span.end == 0) break;  // the span is being written
    after_ = span.number;
  }
  std::erase_if(recent.tracks[0].spans, [&](const auto& span) { return span.number > after_; });
  add_rates({std::move(recent)}, host, rates_);
  if (rates_.empty()) return {};
  auto told = rates_.upper_bound(last_);
  if (told == rates_.end()) told = rates_.begin();
  last_ = told->first;
  const double rate = median_of(std::move(told->second));
  rates_.erase(told);
  return {.from = last_.first, .to = last_.second, .rate = rate};
}

std::map<HostLink, double> median_rates(const LinkRates& rates) {
  std::map<HostLink, double> medians;
  for (const auto& [link, its] : rates) {
    if (its.size() >= kFewRates) medians.emplace(link, median_of(its));
  }
  return medians;
}

std::string SlowLink::name() const {
  return host ? str("host ", *host, "'s link")
              : str("the link from host ", link.first, " to host ", link.second);
}

std::optional<SlowLink> slow_link(const LinkRates& rates, const std::vector<StepPace>& steps) {
  const std::map<HostLink, double> medians = median_rates(rates);
  if (medians.size() < 2 || steps.empty()) return std::nullopt;
  constexpr auto kRate = &std::pair<const HostLink, double>::second;
  const auto [least, most] = std::ranges::minmax_element(medians, {}, kRate);
  SlowLink slow{.link = least->first, .rate = least->second, .best_rate = most->second};
  std::vector<HostLink> all;  // the slow links
  for (const auto& [link, rate] : medians) {
    if (rate < kSlowRate * slow.best_rate) all.push_back(link);
  }
  if (all.empty()) return std::nullopt;
  const auto is_at_all = [&](int host) {
    return std::ranges::all_of(
        all, [&](const HostLink& link) { return link.first == host || link.second == host; });
  };
  if (is_at_all(slow.link.first) != is_at_all(slow.link.second)) {
    slow.host = is_at_all(slow.link.first) ? slow.link.first : slow.link.second;
  }
  slow.seconds_a_step = median_of(mapped(steps, [&](const StepPace& step) {
    const double saved = (1 - slow.rate / slow.best_rate) * (step.exposed + step.hidden);
    return std::min(step.exposed, saved);
  }));
  const double total = median_of(mapped(steps, &StepPace::total));
  if (!(slow.seconds_a_step > kSlowLink * total)) return std::nullopt;
  slow.share = slow.seconds_a_step / total;
  return slow;
}

}  // namespace lockstep::timeline
