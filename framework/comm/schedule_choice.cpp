#include "framework/comm/schedule_choice.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "framework/base/text.h"

namespace lockstep::comm {

ScheduleCost::ScheduleCost(const Schedule& schedule) {
  // The messages that a member sends, or receives, in a round.
  struct Work {
    int messages = 0;
    int slices = 0;
  };
  const double slices = schedule.slices;
  const auto look_at = [&](const Schedule::Round& round, bool adds) {
    std::vector<Work> sent(static_cast<std::size_t>(schedule.members));
    std::vector<Work> received(sent.size());
    Load& load = rounds_.emplace_back();
    for (const Transfer& each : round) {
      for (Work* work : {&sent[static_cast<std::size_t>(each.from)],
                         &received[static_cast<std::size_t>(each.to)]}) {
        ++work->messages;
        work->slices += each.slices.count;
        load.messages = std::max(load.messages, work->messages);
        load.moved = std::max(load.moved, work->slices / slices);
      }
      load.largest = std::max(load.largest, each.slices.count / slices);
    }
    if (adds) load.added = std::ranges::max(received, {}, &Work::slices).slices / slices;
  };
  for (const Schedule::Round& round : schedule.adding) look_at(round, true);
  for (const Schedule::Round& round : schedule.passing) look_at(round, false);
}

double ScheduleCost::seconds(std::size_t bytes, const LinkSpeed& link) const {
  const auto size = static_cast<double>(bytes);
  double total = 0;
  for (const Load& round : rounds_) {
    const bool at_once = round.largest * size <= kSentAtOnce;
    total += (at_once ? 1 : 2) * link.latency + round.messages * kPerMessage +
             round.moved * size / link.bytes_per_second + round.added * size / kAddedPerSecond;
  }
  return total;
}

ScheduleChoice::Candidate::Candidate(std::function<Schedule()> make) : make_(std::move(make)) {
  const Schedule schedule = make_();
  cost_.emplace(schedule);
  is_whole_ = schedule.slices == 1;
}

ScheduleChoice::ScheduleChoice(int members, const LinkSpeed& link)
    : members_(members), link_(link) {
  for (int levels = 1; levels <= std::min(all_levels(members), kMostLevels); ++levels) {
    add_reductions(levels, all_reduce_, reduce_scatter_);
    all_gather_.emplace_back([=] { return gathering(members, levels); });
    broadcast_.emplace_back([=] { return spreading(members, levels); });
    if (all_levels(members) > kMostLevels) continue;  // the root would need a connection to each
    broadcast_.emplace_back(
        [=] { return in_turn(scattering(members), gathering(members, levels)); });
  }
}

void ScheduleChoice::add_reductions(int levels, Candidates& all_reduce,
                                    Candidates& reduce_scatter) const {
  const int n = members_;
  all_reduce.emplace_back([=] { return recursive_doubling(n, levels); });
  all_reduce.emplace_back(
      [=] { return in_turn(recursive_halving(n, levels), gathering(n, levels)); });
  reduce_scatter.emplace_back([=] { return recursive_halving(n, levels); });
}

const ScheduleChoice::Reductions& ScheduleChoice::at_once() const {
  if (!at_once_) {
    at_once_ = Reductions{};
    add_reductions(all_levels(members_), at_once_->all_reduce, at_once_->reduce_scatter);
  }
  return *at_once_;
}

std::string ScheduleChoice::text() const {
  const auto rounds = [&](std::size_t kib) {
    const Schedule& best = all_reduce(kib << 10, {});
    return best.adding.size() + best.passing.size();
  };
  std::size_t kib = std::size_t{1} << 20;
  const std::size_t most = rounds(kib);
  while (kib > 1 && rounds(kib / 2) == most) kib /= 2;
  return str("an all-reduce of 1 KiB takes ",
             counted(static_cast<std::int64_t>(rounds(1)), "round"), ", one of more than ", kib / 2,
             " KiB takes ", most);
}

const ScheduleChoice::Candidate& ScheduleChoice::cheapest(const Candidates& candidates,
                                                          std::size_t bytes,
                                                          const Limits& limits) const {
  const Candidate* best = nullptr;
  double least = 0;
  for (const Candidate& each : candidates) {
    if (limits.whole && !each.is_whole()) continue;
    const double seconds = each.seconds(bytes, link_);
    if (best != nullptr && seconds >= least) continue;
    best = &each;
    least = seconds;
  }
  return *best;
}

}  // namespace lockstep::comm
