#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/non_copyable.h"
#include "framework/base/pages.h"
#include "framework/base/record.h"

namespace lockstep::watch {

/// Part of the text of a differentiated call. Without gradients the text is the same but for this.
inline constexpr std::string_view kDifferentiated = ", differentiated";

/// A member's call of a collective or map, in a form that other members can compare and print.
struct CallRecord {
  /// Equal exactly if two calls agree: operation, axes, groups, dtypes, shapes, options, and
  /// whether they are differentiated or whose backward they are; wherever their source lines are.
  std::uint64_t fingerprint = 0;
  /// For example "psum over 'data' at model.cpp:44 with (64, 10) float32". Where it has more than
  /// kShown bytes, messages show its beginning and "...".
  std::string text;

  static constexpr std::size_t kShown = 439;
};

/// A member of a group, the same for all workers of the group. Ids are never 0.
struct GroupMember {
  std::uint64_t id = 0;
  /// The worker that runs the member and has its seat.
  std::int32_t worker = 0;
  /// The caller of the map that runs this member, the caller of that caller's map, and so on; 0 for
  /// none. While the member has no seat, the search looks at the first elder that has one.
  std::array<std::uint64_t, 3> elders{};

  bool operator==(const GroupMember&) const = default;
};

struct BoardState;
struct SeatWords;

/// Where the members of a job (the replicas of its maps, down to the lanes of a vmap) publish what
/// they are doing, so that one that waits can find out whether its wait can ever end. Every member
/// has a seat with the worker that runs it: a process, or a thread of a job in threads. The memory
/// is a process' own, or a part of the job's HostMemory. A worker has 40 MiB of addresses, of which
/// only used pages take memory.
///
/// A call on a group completes when every member of the group has arrived in it. A verdict says
/// that a call certainly hangs, since a member will never come. It is never a false alarm (see
/// VerdictSearch). Not every hang has a verdict: a member that runs may still do anything.
///
/// If a job has several hosts, each has a board, and its workers use only that. What rests on
/// members of several hosts is found by the launcher of host 0, on copies of all boards
/// (job_watch.h), and published on each of them.
///
/// Rules for callers:
/// - Ids are unique in the job and never used again: two calls of a map have members with different
///   ids. A group's key stands for its members, and is not used again once all workers have let it
///   go. Where is_reusable(), both may be used again.
/// - A worker's part is used through one Board: a second throws CommError.
/// - A map keeps its children's seats until all of them are done, and frees them before it leaves.
/// Any thread may use a Board. Seats and groups keep its memory, so they may outlive it.
class Board {
 public:
  /// A group of members as one worker has it registered.
  struct Group;
  class Seat;
  struct Verdict {
    /// mismatch: the members are out of step. aborted: a member that others wait for has thrown.
    /// lost: it has thrown only because it lost a replica; so the others have lost that one, too.
    ErrorKind kind = ErrorKind::mismatch;
    std::string text;
    /// Whether none of the members that the text could name is still running: the text is final.
    bool settled = true;

    LOCKSTEP_FIELDS(kind, text, settled)
    bool operator==(const Verdict&) const = default;
  };

  /// Replicas and lanes that one process may run at once.
  static constexpr int kSeats = 32768;
  static constexpr int kGroups = 32768;
  static constexpr std::size_t kArenaBytes = std::size_t{4} << 20;

  /// A board of `workers` (at least one) in this process' own memory.
  explicit Board(int workers);
  /// A board in shared memory: the bytes_for(workers) bytes of the memory behind `descriptor` from
  /// `offset` (whole pages) on, which must be zero at first. The descriptor stays the caller's and
  /// may be closed. CommError if the memory ends before.
  Board(int workers, int descriptor, std::size_t offset);
  /// The bytes of a board, whole pages. ValueError if there is no such number of workers.
  [[nodiscard]] static std::size_t bytes_for(int workers);

  /// The group `key`, which the members in `worker` share: one object while any of them holds it.
  /// `members` are in the order of their places, on workers of this board. CommError when the
  /// worker has no room (kGroups of kArenaBytes), or when the key already stands for other members.
  [[nodiscard]] std::shared_ptr<Group> group(int worker, std::uint64_t key,
                                             std::span<const GroupMember> members);

  /// Takes a seat for member `id`, which is running. Messages call it `name`: "2", or "(1, 0)".
  /// CommError when all kSeats of the worker are taken.
  [[nodiscard]] std::unique_ptr<Seat> take_seat(int worker, std::uint64_t id, std::uint64_t parent,
                                                std::string_view name);

  /// Tells the processes of this host which workers it runs; without it, all. Call it once, before
  /// they start. For messages: how many `replicas` the job has, so that one of which nothing is
  /// known can be called by its number; and each worker's host.
  void set_local(int first_worker, int count, int replicas = 0, std::span<const int> host_of = {});
  [[nodiscard]] bool spans_hosts() const noexcept;

  /// What is known of call `number` of the group `key`.
  struct Finding {
    std::uint64_t key = 0;
    std::uint64_t number = 0;
    /// A verdict; or, where its kind is timeout, what absentees() is to say of the call.
    Verdict verdict;

    LOCKSTEP_FIELDS(key, number, verdict)
  };
  /// Publishes what was found on the boards of all hosts. The first verdict on a call counts, and
  /// the last that is said of absentees.
  void publish(const Finding& finding);
  /// A group of a worker, as it lay unheld: whoever takes it up or lets it go changes `holds`.
  struct UnheldGroup {
    std::int32_t worker = 0;
    std::uint32_t slot = 0;
    std::uint64_t holds = 0;

    LOCKSTEP_FIELDS(worker, slot, holds)
    auto operator<=>(const UnheldGroup&) const = default;
  };
  /// No member of any host has held the group since: its worker may forget who has arrived in it.
  /// DataError unless it can be of a worker of this host.
  void let_go(const UnheldGroup& group);
  /// Asks the launchers to read the boards of all hosts, twice.
  void want_readings() noexcept;
  /// How often that was wanted; also when a worker has to know which groups nobody holds any more.
  [[nodiscard]] std::uint64_t readings_wanted() const noexcept;

  /// Says why the call in which `waiting` waits can never complete, if that is certain. Call it
  /// again and again. A verdict is published for the calls that it is about: every member that
  /// waits in one of them gets the same, even if others have gone on since. With `settled_only`, an
  /// unsettled one counts only if it was published. It searches this board: what rests on members
  /// of other hosts comes by publish().
  [[nodiscard]] std::optional<Verdict> examine(const Seat& waiting,
                                               bool settled_only = false) const;

  /// The verdict that was published on the call in which `waiting` waits. While there is none on
  /// any call, this costs one load.
  [[nodiscard]] std::optional<Verdict> published(const Seat& waiting) const;

  /// For a Timeout: the members that have not arrived in the call in which `waiting` waits, what
  /// they do, and the last collective that each has finished; and those whose process is stopped.
  /// "" if there are none. Of a call with members on other hosts, what was published last.
  [[nodiscard]] std::string absentees(const Seat& waiting) const;

  /// For watching workers from outside. A worker calls looked() as long as it checks its members'
  /// waits. activity() changes with each such call, and with all that a member does on the board.
  void looked(int worker) noexcept;
  [[nodiscard]] std::uint64_t activity(int worker) const;
  /// A wait of a worker's member in a call, which is number `number` on the group `key`.
  struct Wait {
    int worker = 0;
    std::uint32_t seat = 0;
    std::uint64_t version = 0;  ///< of the seat: each wait has another
    std::uint64_t key = 0;
    std::uint64_t number = 0;
  };
  /// The waits of the worker's members. Any process of the host may ask.
  [[nodiscard]] std::vector<Wait> waits(int worker) const;
  /// "replica 2 waits in psum over 'data' at model.cpp:44"; "" if the wait is over.
  [[nodiscard]] std::string text_of(const Wait& wait) const;
  [[nodiscard]] std::string absentees(const Wait& wait) const;
  /// Not 0 while a print of a replica of the job waits for its reader: see Waited. Launchers set
  /// it.
  [[nodiscard]] Word& held_up() const noexcept;
  /// Whether a signal has stopped the worker's process, for messages.
  void set_stopped(int worker, bool stopped) noexcept;

  /// Whether ids and keys may be used again on this board of one worker, once all have left it.
  /// True if no verdict was ever published on it and it is small.
  [[nodiscard]] bool is_reusable() const noexcept;

 private:
  friend class BoardCopy;
  std::shared_ptr<BoardState> state_;
};

/// A member's seat on the board, freed with the object. One thread at a time may use it.
class Board::Seat : private NonCopyable {
 public:
  /// Use Board::take_seat().
  Seat(std::shared_ptr<BoardState> state, int worker, std::uint64_t id, std::uint64_t parent,
       std::string_view name);
  ~Seat();

  /// The member waits in its next call on `group` (of the same worker, held until the call ends),
  /// at `place`. Call this before the member can help any other in that call. ValueError if the
  /// group has no such place.
  void start(Group& group, int place, const CallRecord& call);
  /// The member runs again; the call becomes the last that it has finished. After a call that
  /// threw, use threw() or the next start() instead.
  void finish() noexcept;

  /// The member, which runs, has ended step `number` of its training: for messages.
  void end_step(std::uint64_t number) noexcept;

  /// Until leave_map() the member waits for `children` members whose parent it is. They may take
  /// their seats before or after this call.
  void enter_map(const CallRecord& what, int children) noexcept;
  void leave_map() noexcept;

  /// The member will never call again. Others see this until the seat is freed.
  void returned() noexcept;
  void threw(std::string_view text) noexcept;
  /// It threw a CollectiveMismatch with this text, with which members that wait for it end, too.
  void fell_out(std::string_view verdict) noexcept;

 private:
  friend class Board;
  std::shared_ptr<BoardState> state_;
  int worker_;
  std::uint32_t index_;
  SeatWords* words_;
};

}  // namespace lockstep::watch
