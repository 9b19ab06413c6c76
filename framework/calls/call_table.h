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
#include "framework/base/record.h"
#include "framework/base/word.h"

namespace lockstep::calls {

/// Marks a differentiated call's text. The rest equals the text of the call without gradients.
inline constexpr std::string_view kDifferentiated = ", differentiated";

/// A member's call of a collective or map, in a form that other members can compare and print.
struct CallRecord {
  /// Equal for two calls exactly if these agree: operation, axes, groups, dtypes, shapes, options,
  /// whether a call is differentiated and whose backward it is. Source lines do not count.
  std::uint64_t fingerprint = 0;
  /// For example "psum over 'data' at model.cpp:44 with (64, 10) float32". Messages show at most
  /// kShown bytes of it: a longer text is cut and ends with "...".
  std::string text;

  static constexpr std::size_t kShown = 439;
};

/// A member of a group, equal in all workers of the group. Ids are never 0.
struct GroupMember {
  std::uint64_t id = 0;
  /// The worker that runs the member and has its slot.
  std::int32_t worker = 0;
  /// The caller of the map that runs this member, the caller of that caller's map, and so on; 0 for
  /// none. While the member has no slot, the search looks at the first ancestor that has one.
  std::array<std::uint64_t, 3> ancestors{};

  bool operator==(const GroupMember&) const = default;
};

struct TableState;
struct SlotWords;

/// A table in which the members of a job (the replicas of its maps, down to the lanes of a vmap)
/// publish their calls, so that a member that waits can find out if its wait can never end. Every
/// member has a slot with the worker that runs it: a process, or a thread of a job in threads. The
/// memory is a process' own, or a part of the job's HostMemory. A worker has 38 MiB of addresses,
/// but only used pages take memory.
///
/// A call on a group completes when every member of the group has arrived in it. A deadlock report
/// says that a call certainly hangs, since a member will never arrive. It is never a false alarm
/// (see DeadlockDetector). Some hangs have no report: a member that runs may still do anything.
///
/// If a job has several hosts, each host has a call table, and its workers use only that one. The
/// launcher of host 0 searches copies of all call tables (job_watch.h) for reports that rest on
/// members of several hosts, which are published in each call table.
///
/// Rules for callers:
/// - Ids are unique in the job and never used again: two calls of a map have members with different
///   ids. A group's key stands for its members, and is not used again once all workers have let it
///   go. If is_reusable(), ids and keys may be used again.
/// - One CallTable uses a worker's part: a second one throws CommError.
/// - A map keeps its children's slots until all children are done, and frees them before it leaves.
/// Any thread may use a CallTable. Slots and groups keep its memory, so they may outlive it.
class CallTable {
 public:
  /// A group of members, as one worker has registered it.
  struct Group;
  class Slot;
  struct DeadlockReport {
    /// mismatch: the members are out of step. aborted: a member that others wait for has thrown.
    /// lost: it has thrown only because it lost a replica, which the others have lost, too.
    ErrorKind kind = ErrorKind::mismatch;
    std::string text;
    /// True when none of the members that the text could name still runs: the text is final.
    bool settled = true;

    LOCKSTEP_FIELDS(kind, text, settled)
    bool operator==(const DeadlockReport&) const = default;
  };

  /// The most replicas and lanes that one process may run at once.
  static constexpr int kSlots = 32768;
  static constexpr int kGroups = 32768;
  static constexpr std::size_t kArenaBytes = std::size_t{4} << 20;

  /// Makes a call table of `workers` (at least one) in this process' own memory.
  explicit CallTable(int workers);
  /// Makes a call table in shared memory: in the bytes_for(workers) bytes behind `descriptor` from
  /// `offset` (whole pages) on, which must be zero at first. The descriptor stays the caller's and
  /// may be closed. Throws CommError if the memory ends before.
  CallTable(int workers, int descriptor, std::size_t offset);
  /// Returns a call table's bytes: whole pages. Throws ValueError if `workers` is out of range.
  [[nodiscard]] static std::size_t bytes_for(int workers);

  /// Returns group `key`, one object while any of the members in `worker` holds it. `members` are
  /// in the order of their places, on workers of this call table. Throws CommError when the worker
  /// has no room (kGroups groups of kArenaBytes), or when the key already stands for other members.
  [[nodiscard]] std::shared_ptr<Group> group(int worker, std::uint64_t key,
                                             std::span<const GroupMember> members);

  /// Takes a slot for member `id`, which is running. Messages call the member `name`: "2", or
  /// "(1, 0)". Throws CommError when all kSlots of the worker are taken.
  [[nodiscard]] std::unique_ptr<Slot> take_slot(int worker, std::uint64_t id, std::uint64_t parent,
                                                std::string_view name);

  /// Tells the processes of this host which workers it runs; by default, all. Call this once,
  /// before they start. Messages use `replicas`, the job's number of replicas, to name one of which
  /// nothing is known by its number, and `host_of`, each worker's host.
  void set_local(int first_worker, int count, int replicas = 0, std::span<const int> host_of = {});
  [[nodiscard]] bool spans_hosts() const noexcept;

  /// A fact about call `number` of the group `key`.
  struct Finding {
    std::uint64_t key = 0;
    std::uint64_t number = 0;
    /// A report; if its kind is timeout, the text that absentees() returns for the call.
    DeadlockReport report;

    LOCKSTEP_FIELDS(key, number, report)
  };
  /// Publishes a finding from the call tables of all hosts. For each call the first report counts,
  /// and the last text for absentees().
  void publish(const Finding& finding);
  /// A worker's group while nobody holds it: taking it up, or letting it go, changes `holds`.
  struct UnheldGroup {
    std::int32_t worker = 0;
    std::uint32_t index = 0;
    std::uint64_t holds = 0;

    LOCKSTEP_FIELDS(worker, index, holds)
    auto operator<=>(const UnheldGroup&) const = default;
  };
  /// Lets the worker forget the arrivals in its group, which no member of any host has held since.
  /// Throws DataError unless a worker of this host can have the group.
  void let_go(const UnheldGroup& group);
  /// Asks the launchers to read the call tables of all hosts, twice.
  void want_readings() noexcept;
  /// Returns how often readings were wanted, also to tell workers which groups nobody holds.
  [[nodiscard]] std::uint64_t readings_wanted() const noexcept;

  /// Returns the reason why the call in which `waiting` waits can never complete, if that is
  /// certain. Call it again and again. A report is published for all calls that it is about: every
  /// member that waits in one of them gets the same report, even if others have gone on since. With
  /// `settled_only`, an unsettled report counts only if it was published. The search reads this
  /// call table alone: reports that rest on members of other hosts come by publish().
  [[nodiscard]] std::optional<DeadlockReport> examine(const Slot& waiting,
                                                      bool settled_only = false) const;

  /// Returns the report that was published on the call in which `waiting` waits. This costs one
  /// load while no call has a report.
  [[nodiscard]] std::optional<DeadlockReport> published(const Slot& waiting) const;

  /// Returns for a Timeout the members not yet in the call in which `waiting` waits, what they do
  /// and the last collective that each has finished, and the members whose process is stopped; ""
  /// if there are none. For a call with members on other hosts, the last published text counts.
  [[nodiscard]] std::string absentees(const Slot& waiting) const;

  /// Lets others watch a worker, which calls looked() as long as it checks its members' waits.
  /// activity() changes with each such call, and with all that a member does in the call table.
  void looked(int worker) noexcept;
  [[nodiscard]] std::uint64_t activity(int worker) const;
  /// A wait of a worker's member in call `number` of the group `key`.
  struct Wait {
    int worker = 0;
    std::uint32_t slot = 0;
    std::uint64_t version = 0;  ///< the slot's: each wait has another
    std::uint64_t key = 0;
    std::uint64_t number = 0;
  };
  /// Returns the waits of the worker's members. Any process of the host may ask.
  [[nodiscard]] std::vector<Wait> waits(int worker) const;
  /// Returns "replica 2 waits in psum over 'data' at model.cpp:44"; "" if the wait is over.
  [[nodiscard]] std::string text_of(const Wait& wait) const;
  [[nodiscard]] std::string absentees(const Wait& wait) const;
  /// Returns the word that is not 0 while a print of a replica of the job waits for its reader: see
  /// Waited. Launchers set it.
  [[nodiscard]] Word& held_up() const noexcept;
  /// Marks the worker's process as stopped by a signal, or as running, for messages.
  void set_stopped(int worker, bool stopped) noexcept;

  /// True when ids and keys may be used again in this call table of one worker, once all members
  /// have left it: no report was ever published in it, and it is small.
  [[nodiscard]] bool is_reusable() const noexcept;

 private:
  friend class TableCopy;
  std::shared_ptr<TableState> state_;
};

/// A member's slot in the call table, freed with the object. One thread at a time may use it.
class CallTable::Slot : private NonCopyable {
 public:
  /// Use CallTable::take_slot().
  Slot(std::shared_ptr<TableState> state, int worker, std::uint64_t id, std::uint64_t parent,
       std::string_view name);
  ~Slot();

  /// Marks the member as waiting in its next call on `group` (of the same worker, held until the
  /// call ends), at `place`. Call this before the member can help any other in that call. Throws
  /// ValueError if the group has no such place.
  void start(Group& group, int place, const CallRecord& call);
  /// Marks the member as running, and the call as the last that it has finished. After a call that
  /// threw, use threw() or the next start() instead.
  void finish() noexcept;

  /// Sets, for messages, the last training step that the member, which runs, has ended.
  void end_step(std::uint64_t number) noexcept;

  /// Marks the member as waiting, until leave_map(), for `children` members whose parent it is.
  /// They may take their slots before or after this call.
  void enter_map(const CallRecord& what, int children) noexcept;
  void leave_map() noexcept;

  /// Marks the member as one that never calls again. Others see this until the slot is freed.
  void returned() noexcept;
  void threw(std::string_view text) noexcept;
  /// Marks the member as ended by a CollectiveMismatch with this text: members that wait for it end
  /// with this text, too.
  void fell_out(std::string_view report) noexcept;

 private:
  friend class CallTable;
  std::shared_ptr<TableState> state_;
  int worker_;
  std::uint32_t index_;
  SlotWords* words_;
};

}  // namespace lockstep::calls
