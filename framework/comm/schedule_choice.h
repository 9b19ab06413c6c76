#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/comm/link_speed.h"
#include "framework/comm/schedule.h"

namespace lockstep::comm {

/// A processor's seconds for a message, and the bytes that it adds in a second, memory for it
/// included. Both vary by half on the 2-core machines that were measured; a choice needs no more.
inline constexpr double kPerMessage = 5e-6;
inline constexpr double kAddedPerSecond = 4e9;

/// The seconds that a schedule takes for a buffer of `bytes`, by the model of Thakur, Rabenseifner
/// and Gropp, "Optimization of Collective Communication Operations in MPICH" (2005), and LogGP's
/// cost of a message. A round takes as long as for the member with the most to do:
///
///   latency (twice, if messages do not go at once: kSentAtOnce)
///   + messages × the processor's time for one
///   + bytes / bandwidth, in the direction that has more
///   + bytes that are added / the speed of adding
class ScheduleCost {
 public:
  explicit ScheduleCost(const Schedule& schedule);
  [[nodiscard]] double seconds(std::size_t bytes, const LinkSpeed& link) const;

 private:
  // The most that any member has to do in a round. Bytes are shares of the buffer.
  struct Load {
    int messages = 0;
    double moved = 0;
    double added = 0;
    double largest = 0;  // message
  };
  std::vector<Load> rounds_;
};

/// The schedules by which the members of a group do its verbs, and the choice of the cheapest for a
/// size. All members choose alike. With N members and a buffer of S bytes (all_gather: S in the
/// output; reduce_scatter: in the input), by schedules of one round:
///
///   | verb                        | bytes sent by each            | rounds |
///   |-----------------------------|-------------------------------|--------|
///   | all_reduce, barrier, whole  | (N-1) S                       | 1      |
///   | all_reduce, in slices       | 2 (N-1)/N S                   | 2      |
///   | reduce_scatter, all_gather  | (N-1)/N S                     | 1      |
///   | broadcast, whole            | (N-1) S by the root           | 1      |
///   | broadcast, in slices        | (N-1)/N S, by the root twice  | 2      |
///
/// With L levels a round, schedules take log2(N) / L times as many rounds. A member sends 2^L - 1
/// messages a round instead of N - 1, over as many connections a round. Slices take as many bytes
/// (for a power of two); whole buffers take log2(N) / L × (2^L - 1) S. L is at most kMostLevels, so
/// a member of a large group has few connections. Sums of half floats, which are rounded once, are
/// added in one round for any N: the members' own inputs travel.
///
/// One thread at a time may use it: a schedule is made when it is chosen first.
class ScheduleChoice {
 public:
  /// With this many levels, a member exchanges messages with 63 others in a round.
  static constexpr int kMostLevels = 6;

  ScheduleChoice(int members, const LinkSpeed& link);
  [[nodiscard]] const LinkSpeed& link() const noexcept { return link_; }

  /// Restricts the choice to schedules that add in one round, or that do not cut the buffer.
  struct Limits {
    bool complete = false;
    bool whole = false;
  };
  [[nodiscard]] const Schedule& all_reduce(std::size_t bytes, const Limits& limits) const {
    return cheapest(limits.complete ? at_once().all_reduce : all_reduce_, bytes, limits).schedule();
  }
  [[nodiscard]] const Schedule& reduce_scatter(std::size_t bytes, const Limits& limits) const {
    return cheapest(limits.complete ? at_once().reduce_scatter : reduce_scatter_, bytes, limits)
        .schedule();
  }
  /// `bytes` is the size of the output.
  [[nodiscard]] const Schedule& all_gather(std::size_t bytes) const {
    return cheapest(all_gather_, bytes, {}).schedule();
  }
  /// Member 0 of the schedule is the root.
  [[nodiscard]] const Schedule& broadcast(std::size_t bytes) const {
    return cheapest(broadcast_, bytes, {}).schedule();
  }
  /// Returns the seconds that the cheapest all-reduce takes.
  [[nodiscard]] double all_reduce_seconds(std::size_t bytes) const {
    return cheapest(all_reduce_, bytes, {}).seconds(bytes, link_);
  }
  /// Returns "an all-reduce of 1 KiB takes 1 round, one of more than 512 KiB takes 2".
  [[nodiscard]] std::string text() const;

 private:
  // A schedule to choose. Until it is chosen, only its cost is kept.
  class Candidate {
   public:
    explicit Candidate(std::function<Schedule()> make);
    [[nodiscard]] const Schedule& schedule() const {
      if (!made_) made_ = make_();
      return *made_;
    }
    [[nodiscard]] double seconds(std::size_t bytes, const LinkSpeed& link) const {
      return cost_->seconds(bytes, link);
    }
    [[nodiscard]] bool is_whole() const noexcept { return is_whole_; }

   private:
    std::function<Schedule()> make_;
    mutable std::optional<Schedule> made_;
    std::optional<ScheduleCost> cost_;
    bool is_whole_ = false;
  };
  using Candidates = std::vector<Candidate>;
  struct Reductions {
    Candidates all_reduce{};
    Candidates reduce_scatter{};
  };
  void add_reductions(int levels, Candidates& all_reduce, Candidates& reduce_scatter) const;
  // Returns the reductions that add in one round.
  [[nodiscard]] const Reductions& at_once() const;
  [[nodiscard]] const Candidate& cheapest(const Candidates& candidates, std::size_t bytes,
                                          const Limits& limits) const;

  int members_;
  LinkSpeed link_;
  Candidates all_reduce_;
  Candidates reduce_scatter_;
  Candidates all_gather_;
  Candidates broadcast_;
  mutable std::optional<Reductions> at_once_;
};

}  // namespace lockstep::comm
