#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/base/non_copyable.h"
#include "framework/base/pages.h"
#include "framework/base/word.h"
#include "framework/calls/call_table.h"

namespace lockstep::calls {

// This file has the layout of a CallTable's memory, and functions that read it while its owners
// write. All of it is Words, zero at first. Each record has a version, which is odd while the
// record is written. A reader loads the version before and after, and reads again if it changed.

/// A scope in which `version` is odd, while its one writer changes the record.
class Writing : private NonCopyable {
 public:
  explicit Writing(Word& version) noexcept : version_(version) { step(); }
  ~Writing() { step(); }

 private:
  void step() noexcept { version_.store(version_.load() + 1); }
  Word& version_;
};

struct RecordWords {
  Word fingerprint;
  Word text[(CallRecord::kShown + 1) / sizeof(Word)];
};

/// A member's state. Messages name the states in this order.
enum class SlotState : std::uint64_t { free, running, map, returned, waiting, threw };

struct SlotWords {
  Word version;
  Word state;
  /// The group's key, and the call's number in that group, from 1. They stay after the call, also
  /// if the member threw out of it. `completed` is 1 if the call was completed.
  Word key;
  Word number;
  Word completed;
  /// How many members the member's map runs.
  Word children;
  /// How many calls the member has finished. Record `finished` % 2 is the last one's; the other
  /// holds the current call, map or error.
  Word finished;
  /// The last step of training that the member has ended; 0 if it has told none.
  Word step;
  Word name[8];
  RecordWords records[2];
};
static_assert(sizeof(SlotWords) == 1024);

/// A member in a group's entry. An entry is a word with the number of members, then one of these
/// for each member.
struct MemberWords {
  Word id;
  Word ancestors[3];
  Word worker;
  /// How many calls the member has arrived in, counted only in the entry of its own worker.
  Word arrived;
};

struct WorkerWords {
  static constexpr std::size_t kArenaWords = CallTable::kArenaBytes / sizeof(Word);

  /// 1 while a CallTable uses this part.
  Word owned;
  /// How many of the slots and groups were ever used. Later ones are untouched.
  Word slots_used;
  Word groups_used;
  /// How many of the arena's words were ever used.
  Word arena_used;
  /// How often members have checked their waits.
  Word looks;
  /// 1 while a signal has stopped the worker's process.
  Word stopped;
  /// One more than the number of the worker's host; 0 if that is not known.
  Word host;
  /// In a copy: the time of copying, by now_ms(); 0 if nothing was copied yet.
  Word copied_at;

  /// The id and parent of each slot, guarded by the slot's version; side by side for searches.
  Word ids[CallTable::kSlots];
  Word parents[CallTable::kSlots];

  /// These words are for each group. A group that nobody here holds stays while members elsewhere
  /// may still ask who has arrived.
  Word keys[CallTable::kGroups];      ///< 0: no group
  Word versions[CallTable::kGroups];  ///< guards the rest and the entry
  Word offsets[CallTable::kGroups];   ///< the entry's place in the arena
  /// Odd while a member here holds the group. The word never goes back.
  Word holds[CallTable::kGroups];
  /// Equals `holds` when no member of any host has held the group since.
  Word let_go[CallTable::kGroups];

  alignas(4096) SlotWords slots[CallTable::kSlots];
  Word arena[kArenaWords];

  /// Returns the indices of the slots that were ever used.
  [[nodiscard]] auto used_slots() const noexcept {
    const auto used = std::min<std::uint64_t>(slots_used.load(), CallTable::kSlots);
    return std::views::iota(std::uint32_t{0}, static_cast<std::uint32_t>(used));
  }
};

/// A CallTable::Finding.
struct FindingWords {
  Word version;
  Word order;  ///< 1, 2, ... in the order of the ring; 0 for none
  Word key;
  Word number;
  Word kind;
  Word settled;
  Word at;  ///< by now_ms()
  Word text[505];
};
static_assert(sizeof(FindingWords) == 4096);

/// The last findings, in a ring.
struct FindingRing {
  static constexpr std::size_t kKept = 64;
  alignas(4096) Word begun;  ///< how many were ever begun
  FindingWords kept[kKept];
};

struct PublicWords {
  FindingRing reports;
  FindingRing absentees;
  /// Set by CallTable::set_local(). If `local_workers` is 0, all workers are local.
  alignas(4096) Word first_local;
  Word local_workers;
  Word replicas;
  Word readings_wanted;
  Word held_up;
};

/// Returns the milliseconds of this host's steady clock.
[[nodiscard]] std::uint64_t now_ms();

/// The mapped memory of a CallTable, or copies of the call tables of several hosts.
class TableMemory {
 public:
  /// Maps this process' own memory; with `copies`, for copies of the call tables of so many hosts.
  explicit TableMemory(int workers, int copies = 0);
  TableMemory(int workers, int descriptor, std::size_t offset);

  [[nodiscard]] int workers() const noexcept { return workers_; }
  /// Returns how many call tables have their PublicWords here: one for each host.
  [[nodiscard]] int tables() const noexcept { return tables_; }
  [[nodiscard]] WorkerWords& worker(int worker) const noexcept;
  [[nodiscard]] PublicWords& common(int table = 0) const noexcept {
    return reinterpret_cast<PublicWords*>(data_.get())[table];
  }

  /// True when other hosts run some of the workers.
  [[nodiscard]] bool has_others() const noexcept { return common().local_workers.load() != 0; }
  /// True when this host runs `worker`.
  [[nodiscard]] bool is_local(int worker) const noexcept;
  /// True when the slots of `worker` can be read here.
  [[nodiscard]] bool is_known(int worker) const noexcept {
    return has_copies_ ? this->worker(worker).copied_at.load() != 0 : is_local(worker);
  }

 private:
  int workers_;
  int tables_ = 1;
  bool has_copies_ = false;
  std::shared_ptr<std::byte> data_;
};

/// The index of a slot, and its worker.
struct SlotIndex {
  int worker = 0;
  std::uint32_t index = 0;
  auto operator<=>(const SlotIndex&) const = default;
};

/// A slot as it was at one moment.
struct SlotView {
  SlotIndex place;
  std::uint64_t version = 0;
  SlotState state = SlotState::free;
  std::uint64_t id = 0;
  std::uint64_t parent = 0;
  std::uint64_t key = 0;
  std::uint64_t number = 0;
  bool completed = false;
  std::uint64_t children = 0;
  std::uint64_t finished = 0;
  std::uint64_t step = 0;
  /// Fingerprint of the call or map that the member is in.
  std::uint64_t fingerprint = 0;
};

/// Returns nothing if the slot is free, or changes too fast to be read.
[[nodiscard]] std::optional<SlotView> read_slot(const TableMemory& memory, SlotIndex place);

struct SlotTexts {
  std::string name;
  std::string now;
  std::string last;
};

/// Returns the texts of a slot; nothing if it has changed.
[[nodiscard]] std::optional<SlotTexts> read_texts(const TableMemory& memory, const SlotView& slot);

/// The place of a group in a worker's part.
struct GroupView {
  std::uint32_t index = 0;
  std::uint64_t version = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  bool held = false;
};

[[nodiscard]] std::uint32_t used_groups(const WorkerWords& worker) noexcept;
/// Returns nothing if the worker has no such group, or if it changes too fast to be read.
[[nodiscard]] std::optional<GroupView> find_group(const WorkerWords& worker, std::uint64_t key);
[[nodiscard]] inline MemberWords* members_at(WorkerWords& worker, std::uint64_t offset) noexcept {
  return reinterpret_cast<MemberWords*>(&worker.arena[offset + 1]);
}
/// Returns the members; none if the group has gone.
[[nodiscard]] std::vector<GroupMember> read_members(WorkerWords& worker, const GroupView& group);

/// A call number that stands for a member's end: `key` is then the member's id, and the report is
/// the one with which it ended.
inline constexpr std::uint64_t kOwnEnd = ~std::uint64_t{0};
/// Returns the beginning of a slot's text if its member has thrown such an error: "Aborted: ".
[[nodiscard]] inline std::string beginning_for(ErrorKind kind) {
  return std::string(traits_of(kind).name) + ": ";
}

/// Publishes a finding. The ring keeps the last FindingRing::kKept of all calls.
void publish(FindingRing& ring, const CallTable::Finding& finding) noexcept;

struct PublishedFinding {
  std::uint64_t order = 0;
  std::uint64_t at = 0;
  CallTable::DeadlockReport report;
};
/// The first finding on a call, or the last.
enum class Which { first, last };
[[nodiscard]] std::optional<PublishedFinding> published(const FindingRing& ring, std::uint64_t key,
                                                        std::uint64_t number, Which which);
/// Returns the first report on a call.
[[nodiscard]] std::optional<CallTable::DeadlockReport> published(const TableMemory& memory,
                                                                 std::uint64_t key,
                                                                 std::uint64_t number);

/// An allocator of pieces of an arena, in words: first fit, with free neighbours merged.
class Arena {
 public:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  /// Takes `size` free words. Returns their offset; kNone if no piece is large enough.
  [[nodiscard]] std::uint64_t take(std::uint64_t size);
  void give(std::uint64_t offset, std::uint64_t size);
  struct Left {
    std::uint64_t words = 0;
    std::uint64_t in_one_piece = 0;
  };
  [[nodiscard]] Left left() const;

 private:
  std::map<std::uint64_t, std::uint64_t> pieces_{{0, WorkerWords::kArenaWords}};
};

/// Returns the size of a group's entry, in words.
[[nodiscard]] constexpr std::uint64_t entry_words(std::size_t members) noexcept {
  return 1 + members * sizeof(MemberWords) / sizeof(Word);
}

/// A CallTable's memory, and the books of its workers' taken slots and groups. A worker's part
/// belongs to one CallTable, so these books are private to it. Thread-safe.
struct TableState : std::enable_shared_from_this<TableState>, private NonCopyable {
  explicit TableState(TableMemory memory);
  /// Leaves the workers' parts to others.
  ~TableState();

  [[nodiscard]] std::uint32_t take_slot(int worker, std::string_view name);
  void free_slot(int worker, std::uint32_t index) noexcept;

  [[nodiscard]] std::shared_ptr<CallTable::Group> hold_group(int worker, std::uint64_t key,
                                                             std::span<const GroupMember> members);
  /// Releases a group, which its last holder has let go.
  void release_group(int worker, std::uint64_t key) noexcept;

  TableMemory memory;

 private:
  struct Registered {
    std::uint32_t index = 0;
    std::uint64_t offset = 0;
    std::weak_ptr<CallTable::Group> group;
  };
  struct Books {
    bool owned = false;
    std::set<std::uint32_t> free_slots;
    std::set<std::uint32_t> free_groups;
    Arena arena;
    std::unordered_map<std::uint64_t, Registered> groups;
    /// At so many groups, those that nobody holds any more are removed.
    std::size_t sweep_at = 64;
  };

  Books& books(int worker) LOCKSTEP_REQUIRES(mutex_);
  Registered add_group(int worker, std::uint64_t key, std::span<const GroupMember> members)
      LOCKSTEP_REQUIRES(mutex_);
  void remove_group(int worker, std::uint64_t key) noexcept LOCKSTEP_REQUIRES(mutex_);
  [[nodiscard]] bool is_held_elsewhere(int worker, std::uint64_t key,
                                       const Registered& registered) const noexcept;
  void sweep(int worker) noexcept LOCKSTEP_REQUIRES(mutex_);

  Mutex mutex_;
  std::vector<Books> books_ LOCKSTEP_GUARDED_BY(mutex_);
};

struct CallTable::Group {
  std::shared_ptr<TableState> state;
  int worker;
  std::uint64_t key;
  MemberWords* entry;
  int size;

  ~Group() { state->release_group(worker, key); }
};

}  // namespace lockstep::calls
