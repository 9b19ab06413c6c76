#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/watch/board.h"
#include "framework/watch/board_memory.h"

namespace lockstep {

struct SeatIndex {
  int worker = 0;
  std::uint32_t index = 0;
  auto operator<=>(const SeatIndex&) const = default;
};

/// A seat as the search has read it once. At the end the search checks whether it is still the
/// same.
struct KnownSeat {
  SeatIndex place;
  SeatView view;
};

/// A member that has not arrived in a call that others wait in.
struct MissingMember {
  int place = 0;
  GroupMember member;
  /// Its own seat or, if it has none, that of the nearest of its elders that has one.
  /// None if neither has one, or if the map that the elder is in may yet start the member.
  std::optional<KnownSeat> seat;
  bool is_own = true;
};

/// A call that members wait in.
struct PendingCall {
  std::uint64_t key = 0;
  std::uint64_t number = 0;
  std::vector<GroupMember> members;
  std::vector<KnownSeat> waiting;
  std::vector<MissingMember> missing;
  /// Arrived, and left by throwing or returning without having finished it.
  std::vector<KnownSeat> left;
  /// Whether a member could not be read, because what it does was changing: it is in none of these.
  bool has_unread = false;
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

  // What was found.
  [[nodiscard]] bool has_failed() const noexcept { return has_failed_; }
  [[nodiscard]] const std::vector<const PendingCall*>& calls() const noexcept { return calls_; }
  [[nodiscard]] const std::vector<KnownSeat>& maps() const noexcept { return maps_; }
  /// Members of the last call who have returned or thrown, or elders of some.
  [[nodiscard]] const std::vector<KnownSeat>& gone() const noexcept { return gone_; }
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
  std::optional<KnownSeat> read(SeatIndex place) const;

  PendingCall& gather(const KnownSeat& waiting);
  void place_member(PendingCall& call, int place);
  void find_elder(MissingMember& missing);

  bool visit_call(const KnownSeat& waiting);
  bool visit_map(const KnownSeat& seat);
  bool visit(const KnownSeat& seat);
  bool is_final(const PendingCall& call);
  /// Where the search stands, to come back to.
  struct Mark {
    std::size_t way, calls, maps, edges;
  };
  [[nodiscard]] Mark mark() const {
    return {way_.size(), calls_.size(), maps_.size(), edges_.size()};
  }
  void go_back(const Mark& mark);
  [[nodiscard]] bool is_unchanged() const;
  [[nodiscard]] bool holds(const PendingCall& call, const MissingMember& missing) const;

  struct Edge {
    const PendingCall* call;
    const MissingMember* missing;
  };

  const BoardMemory& memory_;
  std::map<int, Index> indices_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, PendingCall> known_calls_;
  std::set<SeatIndex> seen_maps_;
  /// Where what was found leads: how many calls of the way lie before that.
  std::size_t before_end_ = 0;
  /// Seats as they were when the search went on through them, whatever it has read of them since.
  std::vector<KnownSeat> way_;
  std::vector<const PendingCall*> calls_;
  std::vector<KnownSeat> maps_;
  std::vector<KnownSeat> gone_;
  std::vector<Edge> edges_;
  bool has_failed_ = false;
};

}  // namespace lockstep
