#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::watch {

/// What the text of a differentiated call has in addition to that of the same call without
/// gradients.
inline constexpr std::string_view kDifferentiated = ", differentiated";

/// A member's call of a collective or map, in a form that other members can compare and print.
struct CallRecord {
  /// Equal exactly if two calls agree: operation, axes, groups, dtypes, shapes, options, and
  /// whether they are differentiated or which call's backward they are. The source line does not
  /// count.
  std::uint64_t fingerprint = 0;
  /// For example "psum over 'data' at model.cpp:44 with (64, 10) float32". Where it has more than
  /// kShown bytes, messages show its beginning and "...".
  std::string text;

  static constexpr std::size_t kShown = 439;
};

/// A member of a group, as all of its workers know it. Ids are never 0.
struct GroupMember {
  std::uint64_t id = 0;
  /// The worker that runs it, where it takes its seat.
  std::int32_t worker = 0;
  /// The member whose map runs this one, the one whose map runs that one, and so on; 0 for none.
  /// While this one has no seat the search looks at the first of them that has one.
  std::array<std::uint64_t, 3> elders{};

  bool operator==(const GroupMember&) const = default;
};

struct BoardState;
struct SeatWords;

/// Where the members of a job (the replicas of its maps, down to the lanes of a vmap) publish what
/// they are doing. A member that waits can then find out whether its wait can ever end. Every
/// member has a seat with the worker that runs it: a process, or a thread of a job in threads. The
/// memory is private to a process, or a part of the job's HostMemory. Making it costs microseconds
/// whatever its size: of the 40 MiB of addresses a worker takes, only what is used becomes memory.
///
/// A call on a group completes when every member of the group has arrived in it; it hangs if a
/// member never comes. A verdict says that this is certain. It is never a false alarm: a seat says
/// that its member waits before the member can help any other, and a verdict is given only if all
/// that it rests on is unchanged when read again. Not every hang has a verdict: a member that runs
/// may still do anything.
///
/// Rules for callers:
/// - An id is unique in the job and never used again: members of two calls of a map have different
///   ids. A group's key says who its members are, and is not used again once all workers have let
///   it go. Both may be where is_reusable().
/// - A worker's part is used through one Board: a second throws CommError.
/// - A map keeps its children's seats until all of them are done, and frees them before it leaves.
/// Any thread may use a Board. Seats and groups keep its memory: they may live longer.
class Board {
 public:
  /// A group of members as one worker has it registered.
  struct Group;
  class Seat;
  struct Verdict {
    /// mismatch: the members are out of step. failed: a member that others wait for has thrown.
    /// lost: it has thrown only because it lost a replica; so the others have lost that replica,
    /// too.
    enum class Kind { mismatch, failed, lost };
    Kind kind = Kind::mismatch;
    std::string text;
    /// Whether the text names every member that it could be about: none of them is still running.
    bool settled = true;

    bool operator==(const Verdict&) const = default;
  };

  /// Replicas and lanes that one process may run at once.
  static constexpr int kSeats = 32768;
  static constexpr int kGroups = 32768;
  static constexpr std::size_t kArenaBytes = std::size_t{4} << 20;

  /// A board of `workers` (at least one) in this process' own memory.
  explicit Board(int workers);
  /// The board in the bytes_for(workers) bytes from `offset`, a whole number of pages, of the
  /// memory behind `descriptor`, which were zero at first; the descriptor stays the caller's and
  /// may be closed. CommError if the memory ends before.
  Board(int workers, int descriptor, std::size_t offset);
  /// The bytes of a board, whole pages. ValueError if there is no such number of workers.
  [[nodiscard]] static std::size_t bytes_for(int workers);

  /// The group `key` as the members in `worker` share it: one object for as long as one of them
  /// holds it. `members` are in the order of their places, on workers of this board. CommError when
  /// the worker has no room (kGroups of kArenaBytes), or when the key stands for other members
  /// already.
  [[nodiscard]] std::shared_ptr<Group> group(int worker, std::uint64_t key,
                                             std::span<const GroupMember> members);

  /// A seat for member `id`, running. `name` is what messages call it: "2", or "(1, 0)". CommError
  /// when all kSeats of the worker are taken.
  [[nodiscard]] std::unique_ptr<Seat> take_seat(int worker, std::uint64_t id, std::uint64_t parent,
                                                std::string_view name);

  /// Why the call that `waiting` waits in can never complete, if that is certain; none if it does
  /// not wait. Any thread may ask that keeps `waiting` alive. A verdict is published for the calls
  /// that it is about: every member that waits in one of them gets the same verdict, even if others
  /// have gone on since. With `settled_only`, only a settled one.
  [[nodiscard]] std::optional<Verdict> examine(const Seat& waiting,
                                               bool settled_only = false) const;

  /// The verdict that was published on the call that `waiting` waits in. One load while none was on
  /// any.
  [[nodiscard]] std::optional<Verdict> published(const Seat& waiting) const;

  /// Who has not arrived in the call that `waiting` waits in, what they are doing and the last
  /// collective each has finished, for a Timeout. "" if it does not wait or all have arrived.
  [[nodiscard]] std::string absentees(const Seat& waiting) const;

  /// For watching workers from outside. A worker calls `looked` as long as it looks after its
  /// members' waits. `activity` changes with each such call, and whenever a member of the worker
  /// does anything that the board shows.
  void looked(int worker) noexcept;
  [[nodiscard]] std::uint64_t activity(int worker) const;
  /// If a member of the worker waits for others in a call: that call, and absentees(). Otherwise
  /// "". Any process may ask, even one that is no worker.
  [[nodiscard]] std::string pending(int worker) const;

  /// Once all have left it: whether ids and keys may be used again on this board of one worker.
  /// No verdict was ever published on it, and it is small.
  [[nodiscard]] bool is_reusable() const noexcept;

 private:
  std::shared_ptr<BoardState> state_;
};

/// A member's place on the board, freed with the object. Its verbs are for one thread at a time.
class Board::Seat {
 public:
  /// Use Board::take_seat().
  Seat(std::shared_ptr<BoardState> state, int worker, std::uint64_t id, std::uint64_t parent,
       std::string_view name);
  ~Seat();
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  /// The member waits in its next call on `group`, where it is member number `place`. Call this
  /// before the member can help any other in that call. `group` is that of the same worker; hold it
  /// until the call ends. ValueError if it has no such place.
  void start(Group& group, int place, const CallRecord& call);
  /// The member runs again; the call becomes the last that it has finished. After a call that
  /// threw, use threw() or the next start() instead.
  void finish() noexcept;

  /// Until leave_map() it waits for `children` members whose parent it is and who take their seats
  /// before or after this.
  void enter_map(const CallRecord& what, int children) noexcept;
  void leave_map() noexcept;

  /// It will never call again. Known until the seat is freed.
  void returned() noexcept;
  void threw(std::string_view text) noexcept;
  /// It threw a CollectiveMismatch with the text `verdict`: members that wait for this one end with
  /// the same text.
  void fell_out(std::string_view verdict) noexcept;

 private:
  friend class Board;
  std::shared_ptr<BoardState> state_;
  int worker_;
  std::uint32_t index_;
  SeatWords* words_;
};

}  // namespace lockstep::watch
