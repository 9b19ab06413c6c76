#include "framework/comm/schedule_choice.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "framework/base/text.h"

namespace lockstep::comm {
namespace {

// What a processor takes for a message, and how much it adds in a second, memory for it included.
// Measured on 2-core machines, where both vary by half; the choice needs no more.
constexpr double kPerMessage = 5e-6;
constexpr double kAdded = 4e9;

}  // namespace

ScheduleCost::ScheduleCost(const Schedule& schedule) {
  // What a member sends or receives.
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
             round.moved * size / link.bytes_per_second + round.added * size / kAdded;
  }
  return total;
}

ScheduleChoice::ScheduleChoice(int members, const LinkSpeed& link) : link_(link) {
  const auto add = [](Candidates& to, Schedule schedule) {
    const ScheduleCost cost(schedule);
    to.push_back({std::move(schedule), cost});
  };
  for (int levels = 1; levels <= all_levels(members); ++levels) {
    const Schedule gathers = gathering(members, levels);
    add(all_reduce_, recursive_doubling(members, levels));
    add(all_reduce_, in_turn(recursive_halving(members, levels), gathers));
    add(reduce_scatter_, recursive_halving(members, levels));
    add(all_gather_, gathers);
    add(broadcast_, spreading(members, levels));
    add(broadcast_, in_turn(scattering(members), gathers));
  }
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
    const Schedule& schedule = each.schedule;
    if (limits.complete && schedule.adding.size() > 1) continue;
    if (limits.whole && schedule.slices > 1) continue;
    const double seconds = each.cost.seconds(bytes, link_);
    if (best != nullptr && seconds >= least) continue;
    best = &each;
    least = seconds;
  }
  return *best;
}

}  // namespace lockstep::comm
