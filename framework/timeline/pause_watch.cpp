#include "framework/timeline/pause_watch.h"

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/text.h"

namespace lockstep::timeline {
namespace {

std::uint64_t nanoseconds_of(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

std::uint64_t time_asleep() noexcept {
  // In this order the time between the two readings can only be missing in the result.
  const std::uint64_t all = nanoseconds_of(CLOCK_BOOTTIME);
  return all - std::min(all, nanoseconds_of(CLOCK_MONOTONIC));
}

void PauseWatch::look(std::uint64_t now, std::uint64_t asleep) {
  const std::uint64_t before = std::min(std::exchange(last_, now), now);
  const std::uint64_t slept = asleep - std::min(asleep, asleep_);
  asleep_ = std::max(asleep_, asleep);
  for (std::int64_t replica = replicas_.offset; replica < replicas_.end(); ++replica) {
    if (slept >= kShortest) add(replica, now, now, slept);
    if (now - before < kShortest) continue;
    std::vector<std::uint64_t> words{before, now};
    for (std::size_t track = 0; track < Recorder::kTracks; ++track) {
      const auto its =
          recorder_.read(static_cast<int>(replica), track, 0, Recorder::Names::left_out);
      for (const Recorder::Span& span : its.spans) {
        for (const std::uint64_t time : {span.begin, span.end}) {
          if (time > before && time < now) words.push_back(time);
        }
      }
    }
    std::ranges::sort(words);
    std::size_t longest = 1;
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (words[i] - words[i - 1] > words[longest] - words[longest - 1]) longest = i;
    }
    if (words[longest] - words[longest - 1] >= kShortest)
      add(replica, words[longest - 1], words[longest], 0);
  }
}

void PauseWatch::add(std::int64_t replica, std::uint64_t begin, std::uint64_t end,
                     std::uint64_t asleep) {
  const auto track = recorder_.take_launchers(static_cast<int>(replica));
  if (!track) return;  // the replica was stopped alone before, and still is
  Recorder::Details details{.kind = SpanKind::pause};
  if (asleep > 0) {
    details.name = track->name(
        asleep, [&] { return str("the machine slept for ", asleep / 1'000'000'000, " s"); });
  }
  track->add(details, begin, end);
}

}  // namespace lockstep::timeline
