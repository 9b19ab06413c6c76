#pragma once

#include <cstdint>
#include <map>
#include <memory>
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
  /// Its own seat. If it has none: the seat of its nearest elder that has one. None if no elder has
  /// a seat, or if that elder's map may yet start the member.
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
  /// Members that arrived and then threw or returned without finishing the call.
  std::vector<SeatView> left;
  /// Whether a member changed too fast to be read. It is in none of these lists.
  bool has_unread = false;
};

/// A call that waits for a member.
struct Edge {
  const PendingCall* call;
  const MissingMember* missing;
};

/// Searches for the reason why a call can never complete, along a graph of waits: a call waits for
/// its missing members; a member waits for the call that it is in, or for the members that its map
/// runs. A wait can never end if its path leads to a member that has returned or thrown, to a call
/// on which members disagree, or back to a call on the path.
///
/// A replica that can never go on will throw, and the caller of its map may catch that and arrive
/// after all. So beyond a map only paths that lead back to a call before it count.
///
/// Why a verdict is never a false alarm, if holds() after find():
/// 1. The version of a seat changes with whatever its member does, and never comes back. A seat
///    says that its member waits before the member can help any other.
/// 2. The count of a member's arrivals in a group only grows. It is kept for as long as a member of
///    any host holds the group, and who waits in a call holds its group.
/// 3. There are two readings, and the second begins when the first has ended. Of this host's
///    workers, both read the board itself. Of several hosts' they read copies: each host is asked
///    for what is new once all have answered the question before (job_watch.h).
/// 4. A seat that has the same version in both was the same all the time between them. A count that
///    is too low in the second was too low before. So between the readings there was a moment at
///    which all that was found was true at once.
/// 5. What was true then stays true: each call found lacks a member that has ended for good,
///    disagrees, or waits itself in a call found. None of them can move before another.
/// 6. A copy of a host's part is as good as its board. A seat is copied whole, before the counts: a
///    member that has gone on from a call had arrived before. One that has changed when all was
///    copied gets an odd version, as if it were just being written: nothing rests on it.
/// 7. Of a host that has not answered nothing is known, and nothing rests on it.
class VerdictSearch {
 public:
  /// Where a worker's seats are, by id.
  using Index = std::unordered_map<std::uint64_t, std::uint32_t>;
  using Indices = std::map<int, Index>;

  /// Searches in what does not change meanwhile may share `indices`.
  explicit VerdictSearch(const BoardMemory& memory,
                         std::shared_ptr<Indices> indices = std::make_shared<Indices>())
      : memory_(memory), indices_(std::move(indices)) {}

  /// The call in which a seat waits, with its members; null if the seat does not wait.
  const PendingCall* call_of(SeatIndex place);
  /// Whether there is a verdict on the call in which a seat waits.
  [[nodiscard]] bool find(SeatIndex waiting);

  /// The path of the search and, once it has found a reason, where it ends.
  struct Found {
    /// The seats on the path, as they were when the search passed them.
    std::vector<SeatView> way;
    std::vector<const PendingCall*> calls;
    std::vector<Edge> edges;
    /// Members of the last call that have returned or thrown, or such elders of missing members.
    std::vector<SeatView> gone;
  };
  [[nodiscard]] const Found& found() const noexcept { return found_; }
  /// Whether every member of these calls was read, and every missing one is part of it.
  [[nodiscard]] bool is_settled() const;
  /// Reads again all that the result rests on: whether it was so at a moment since the search.
  [[nodiscard]] bool holds() const;

 private:
  [[nodiscard]] std::vector<SeatIndex> children_of(std::uint64_t id) const;
  std::optional<SeatIndex> seat_of(std::uint64_t id, int worker);

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
  std::shared_ptr<Indices> indices_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, PendingCall> known_calls_;
  std::set<SeatIndex> seen_maps_;
  Found found_;
  /// How many calls on the path lie before the call that ends it.
  std::size_t before_end_ = 0;
};

/// The verdict that a search finds on the call in which a seat waits, before holds() was asked.
[[nodiscard]] std::optional<Board::Verdict> found_by(const BoardMemory& memory,
                                                     VerdictSearch& search, SeatIndex waiting);
/// What Board::absentees() says of a call.
[[nodiscard]] std::string absentees_of(const BoardMemory& memory, const PendingCall& call);

}  // namespace lockstep::watch
