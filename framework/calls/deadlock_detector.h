#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/calls/table_memory.h"

namespace lockstep::calls {

/// A member that has not arrived in a call in which others wait.
struct MissingMember {
  int place = 0;
  GroupMember member;
  /// The member's own slot; if it has none, the slot of its nearest ancestor that has one. Empty if
  /// no ancestor has a slot, or if that ancestor's map may yet start the member.
  std::optional<SlotView> slot;
  bool is_own = true;
};

/// A call in which members wait.
struct PendingCall {
  std::uint64_t key = 0;
  std::uint64_t number = 0;
  std::vector<GroupMember> members;
  std::vector<SlotView> waiting;
  std::vector<MissingMember> missing;
  /// Members that arrived and then threw or returned without finishing the call.
  std::vector<SlotView> left;
  /// True when a member changed too fast, and is in none of these lists, or its host is unknown.
  bool has_unread = false;
};

/// A call that waits for a member.
struct Edge {
  const PendingCall* call;
  const MissingMember* missing;
};

/// A search for the reason why a call can never complete, along a graph of waits: a call waits for
/// its missing members; a member waits for the call that it is in, or for the members that its map
/// runs. A wait can never end if its path leads to a member that has returned or thrown, to a call
/// on which members disagree, or back to a call on the path.
///
/// A replica that can never go on will throw, and the caller of its map may catch that and arrive
/// after all. So a path through a map counts only if it leads back to a call before the map.
///
/// A report is never a false alarm if holds() is true after find():
/// 1. A slot's version changes with all that its member does, and never comes back. A slot says
///    that its member waits before the member can help any other.
/// 2. The count of a member's arrivals in a group only grows. It is kept as long as a member of any
///    host holds the group, and a member that waits in a call holds the call's group.
/// 3. There are two readings, and the second begins when the first has ended. For one host, both
///    read the call table itself. For several hosts they read copies: each host is asked for its
///    news once all have answered the question before (job_watch.h).
/// 4. A slot with the same version in both was the same between them. A count that is too low in
///    the second was too low before. So at one moment, all that was found was true at once.
/// 5. All of it stays true: each call found lacks a member that has ended for good, that disagrees,
///    or that waits itself in a call found. None of these members can move before another.
/// 6. A copy of a host's part is as good as its call table. A slot is copied whole, before the
///    counts: a member that has gone on from a call had arrived before. A slot that changes before
///    all is copied gets an odd version, as if it were being written: nothing rests on it.
/// 7. Nothing is known of a host that has not answered, and nothing rests on it.
class DeadlockDetector {
 public:
  /// The places of a worker's slots, by id.
  using Index = std::unordered_map<std::uint64_t, std::uint32_t>;
  using Indices = std::map<int, Index>;

  /// Searches may share `indices` as long as `memory` does not change.
  explicit DeadlockDetector(const TableMemory& memory,
                            std::shared_ptr<Indices> indices = std::make_shared<Indices>())
      : memory_(memory), indices_(std::move(indices)) {}

  /// Returns the call in which a slot waits, with its members; null if the slot does not wait.
  const PendingCall* call_of(SlotIndex place);
  /// Returns true if it finds a reason why the call in which a slot waits can never complete.
  [[nodiscard]] bool find(SlotIndex waiting);

  /// The path of the search, which ends at the reason once that is found.
  struct Found {
    /// The slots on the path, as they were when the search passed them.
    std::vector<SlotView> way;
    std::vector<const PendingCall*> calls;
    std::vector<Edge> edges;
    /// Members of the last call, or ancestors of its missing members, that have returned or thrown.
    std::vector<SlotView> gone;
  };
  [[nodiscard]] const Found& found() const noexcept { return found_; }
  /// True when every member of these calls was read, and every missing one is a part of the reason.
  [[nodiscard]] bool is_settled() const;
  /// Reads again all that the result rests on: true if all was so at a moment since the search.
  [[nodiscard]] bool holds() const;

 private:
  [[nodiscard]] std::vector<SlotIndex> children_of(std::uint64_t id) const;
  std::optional<SlotIndex> slot_of(std::uint64_t id, int worker);

  PendingCall& gather(const SlotView& waiting);
  void place_member(PendingCall& call, int place);
  void find_ancestor(MissingMember& missing);

  bool visit_call(const SlotView& waiting);
  bool visit_map(const SlotView& slot);
  bool visit(const SlotView& slot);
  bool is_final(const PendingCall& call);
  [[nodiscard]] bool is_unchanged() const;
  [[nodiscard]] bool holds(const PendingCall& call, const MissingMember& missing) const;

  const TableMemory& memory_;
  std::shared_ptr<Indices> indices_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, PendingCall> known_calls_;
  std::set<SlotIndex> seen_maps_;
  Found found_;
  /// The number of calls on the path before the call that ends it.
  std::size_t before_end_ = 0;
};

/// Returns the report that a search finds on the call in which a slot waits; holds() has yet to
/// confirm it.
[[nodiscard]] std::optional<CallTable::DeadlockReport> found_by(const TableMemory& memory,
                                                                DeadlockDetector& search,
                                                                SlotIndex waiting);
/// Returns the text of CallTable::absentees() for a call.
[[nodiscard]] std::string absentees_of(const TableMemory& memory, const PendingCall& call);

}  // namespace lockstep::calls
