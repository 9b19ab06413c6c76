#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/watch/board_memory.h"

namespace lockstep::watch {

/// A member that has not arrived in a call that others wait in.
struct MissingMember {
  int place = 0;
  GroupMember member;
  /// Its own seat or, if it has none, that of the nearest of its elders that has one.
  /// None if neither has one, or if the map that the elder is in may yet start the member.
  std::optional<SeatView> seat;
  bool is_own = true;
};

/// A call that members wait in.
struct PendingCall {
  std::uint64_t key = 0;
  std::uint64_t number = 0;
  std::vector<GroupMember> members;
  std::vector<SeatView> waiting;
  std::vector<MissingMember> missing;
  /// Arrived, and left by throwing or returning without having finished it.
  std::vector<SeatView> left;
  /// Whether a member could not be read, because what it does was changing: it is in none of these.
  bool has_unread = false;
};

/// A call that waits for a member.
struct Edge {
  const PendingCall* call;
  const MissingMember* missing;
};

/// Searches for the reason why a call can never complete, along a graph of waits: a call waits for
/// the members that are missing in it; a member waits for the call that it is in, or for the
/// members that its map runs. A wait can never end if its way leads to a member that has returned
/// or thrown, to a call on which members disagree, or back to a call on the way.
///
/// One of a map's replicas that can never go on will throw, and the member that has called the map
/// may catch that and arrive: from a map the way leads only back to what lies before it.
class VerdictSearch {
 public:
  explicit VerdictSearch(const BoardMemory& memory) : memory_(memory) {}

  /// The call that a seat waits in, with who is in it; null if it does not wait.
  const PendingCall* call_of(SeatIndex place);
  /// Whether there is a verdict on the call that a seat waits in.
  [[nodiscard]] bool find(SeatIndex waiting);

  /// The way of the search and, once it has found something, where that ends.
  struct Found {
    /// Seats as they were when the search went on through them, whatever it has read since.
    std::vector<SeatView> way;
    std::vector<const PendingCall*> calls;
    std::vector<SeatView> maps;
    std::vector<Edge> edges;
    /// Members of the last call who have returned or thrown, or elders of some.
    std::vector<SeatView> gone;
    /// Whether one of these has thrown.
    bool has_failed = false;
  };
  [[nodiscard]] const Found& found() const noexcept { return found_; }
  /// Whether every member of these calls was read, and all that are missing are part of what was
  /// found.
  [[nodiscard]] bool is_settled() const;
  /// Whether all of it holds now, at one moment: read again after what was read for it.
  [[nodiscard]] bool holds() const;

 private:
  using Index = std::unordered_map<std::uint64_t, std::uint32_t>;

  const Index& seats_of(int worker);
  [[nodiscard]] std::vector<SeatIndex> children_of(std::uint64_t id) const;
  /// The place of a member's seat, first on `worker`, then (for elders) elsewhere.
  std::optional<SeatIndex> place_of(std::uint64_t id, int worker, bool anywhere);

  PendingCall& gather(const SeatView& waiting);
  void place_member(PendingCall& call, int place);
  void find_elder(MissingMember& missing);

  bool visit_call(const SeatView& waiting);
  bool visit_map(const SeatView& seat);
  bool visit(const SeatView& seat);
  bool is_final(const PendingCall& call);
  [[nodiscard]] bool is_unchanged() const;
  [[nodiscard]] bool holds(const PendingCall& call, const MissingMember& missing) const;

  const BoardMemory& memory_;
  std::map<int, Index> indices_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, PendingCall> known_calls_;
  std::set<SeatIndex> seen_maps_;
  Found found_;
  /// How many calls of the way lie before the one that it ends in or comes back to.
  std::size_t before_end_ = 0;
};

}  // namespace lockstep::watch
