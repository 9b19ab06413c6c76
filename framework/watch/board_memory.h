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
#include "framework/watch/board.h"

namespace lockstep::watch {

// The layout of a Board's memory, and how to read it while its owners write. All of it is Words,
// zero at first. Each record has a version, which is odd while the record is written. A reader
// loads the version before and after, and reads again if it changed.

/// Keeps `version` odd while its one writer changes the record.
class Writing : private NonCopyable {
 public:
  explicit Writing(Word& version) noexcept : version_(version) { step(); }
  ~Writing() { step(); }

 private:
  void step() noexcept { version_.store(version_.load() + 1); }
  Word& version_;
};

/// Writes `text` and a zero. A text that does not fit is cut and ends with "...".
void write_text(std::span<Word> words, std::string_view text) noexcept;
[[nodiscard]] std::string read_text(std::span<const Word> words);

struct RecordWords {
  Word fingerprint;
  Word text[(CallRecord::kShown + 1) / sizeof(Word)];
};

/// A member's state. Messages name the states in this order.
enum class SeatState : std::uint64_t { free, running, map, returned, waiting, threw };

struct SeatWords {
  Word version;
  Word state;
  /// The group's key, and the call's number in that group, from 1. They stay after the call: a
  /// member that threw out of a call has them. `completed` is 1 if the call was completed.
  Word key;
  Word number;
  Word completed;
  /// How many members the map runs that it is in.
  Word children;
  /// How many calls it has finished. Record `finished` % 2 is that of the last one; the other holds
  /// the current call, map or error.
  Word finished;
  /// The last step of training that it has ended; 0: it has told none.
  Word step;
  Word name[8];
  RecordWords records[2];
};
static_assert(sizeof(SeatWords) == 1024);

/// A member in a group's entry. An entry is a word with the number of members, then one of these
/// for each member.
struct MemberWords {
  Word id;
  Word elders[3];
  Word worker;
  /// How many calls it has arrived in. Counted only in the entry of its own worker.
  Word arrived;
};

struct WorkerWords {
  static constexpr std::size_t kArenaWords = Board::kArenaBytes / sizeof(Word);

  /// 1 while a Board uses this.
  Word owned;
  /// How many of the seats and groups have ever been used. Later ones are untouched.
  Word seats_used;
  Word groups_used;
  /// The same of the arena's words.
  Word arena_used;
  /// How often members have looked after their waits.
  Word looks;
  /// Whether a signal has stopped its process.
  Word stopped;
  /// One more than the number of its host, if that is known.
  Word host;
  /// In a copy: when it was made, by now_ms(). 0: nothing was copied yet.
  Word copied_at;

  /// The id and parent of each seat, guarded by the seat's version. Side by side for searching.
  Word ids[Board::kSeats];
  Word parents[Board::kSeats];

  /// For each group. One that nobody here holds stays while members elsewhere may still ask who has
  /// arrived.
  Word keys[Board::kGroups];      ///< 0: no group
  Word versions[Board::kGroups];  ///< guards the rest and the entry
  Word offsets[Board::kGroups];   ///< of the entry in the arena
  /// Odd while a member here holds the group. It never goes back.
  Word holds[Board::kGroups];
  /// Where equal to `holds`: no member of any host has held the group since.
  Word let_go[Board::kGroups];

  alignas(4096) SeatWords seats[Board::kSeats];
  Word arena[kArenaWords];

  /// The indices of the seats that have ever been used.
  [[nodiscard]] auto used_seats() const noexcept {
    const auto used = std::min<std::uint64_t>(seats_used.load(), Board::kSeats);
    return std::views::iota(std::uint32_t{0}, static_cast<std::uint32_t>(used));
  }
};

/// A Board::Finding.
struct FindingWords {
  Word version;
  Word order;  ///< 1, 2, ... of those on this board; 0 for none
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
  FindingRing verdicts;
  FindingRing absentees;
  /// Set by Board::set_local(). No local workers: all are.
  alignas(4096) Word first_local;
  Word local_workers;
  Word replicas;
  Word readings_wanted;
  Word held_up;
};

/// Milliseconds of this host's steady clock.
[[nodiscard]] std::uint64_t now_ms();

/// The mapped memory of a Board, or copies of the boards of several hosts.
class BoardMemory {
 public:
  /// This process' own; with `copies`, of the boards of so many hosts.
  explicit BoardMemory(int workers, int copies = 0);
  BoardMemory(int workers, int descriptor, std::size_t offset);

  [[nodiscard]] int workers() const noexcept { return workers_; }
  /// How many boards have their PublicWords here: one for each host.
  [[nodiscard]] int boards() const noexcept { return boards_; }
  [[nodiscard]] WorkerWords& worker(int worker) const noexcept;
  [[nodiscard]] PublicWords& common(int board = 0) const noexcept {
    return reinterpret_cast<PublicWords*>(data_.get())[board];
  }

  /// Whether other hosts run some of the workers, and whether this host runs `worker`.
  [[nodiscard]] bool has_others() const noexcept { return common().local_workers.load() != 0; }
  [[nodiscard]] bool is_local(int worker) const noexcept;
  /// Whether what `worker` does can be read here.
  [[nodiscard]] bool is_known(int worker) const noexcept {
    return has_copies_ ? this->worker(worker).copied_at.load() != 0 : is_local(worker);
  }

 private:
  int workers_;
  int boards_ = 1;
  bool has_copies_ = false;
  std::shared_ptr<std::byte> data_;
};

/// The index of a seat, and its worker.
struct SeatIndex {
  int worker = 0;
  std::uint32_t index = 0;
  auto operator<=>(const SeatIndex&) const = default;
};

/// A seat as it was at one moment.
struct SeatView {
  SeatIndex place;
  std::uint64_t version = 0;
  SeatState state = SeatState::free;
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

/// None if the seat is free, or changes too fast to be read.
[[nodiscard]] std::optional<SeatView> read_seat(const BoardMemory& memory, SeatIndex place);

struct SeatTexts {
  std::string name;
  std::string now;
  std::string last;
};

/// The texts of a seat; none if it has changed.
[[nodiscard]] std::optional<SeatTexts> read_texts(const BoardMemory& memory, const SeatView& seat);

/// Where a worker has a group.
struct GroupView {
  std::uint32_t slot = 0;
  std::uint64_t version = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  bool held = false;
};

[[nodiscard]] std::uint32_t group_slots(const WorkerWords& worker) noexcept;
/// None if the worker has no such group, or if it changes too fast to be read.
[[nodiscard]] std::optional<GroupView> find_group(const WorkerWords& worker, std::uint64_t key);
[[nodiscard]] inline MemberWords* members_at(WorkerWords& worker, std::uint64_t offset) noexcept {
  return reinterpret_cast<MemberWords*>(&worker.arena[offset + 1]);
}
/// The members; empty if the group has gone.
[[nodiscard]] std::vector<GroupMember> read_members(WorkerWords& worker, const GroupView& group);

/// A call number that stands for a member's end: `key` is then the member's id, and the verdict is
/// what it ended with.
inline constexpr std::uint64_t kOwnEnd = ~std::uint64_t{0};
/// The beginning of a seat's text if its member has thrown such an error: "Aborted: ".
[[nodiscard]] inline std::string beginning_for(ErrorKind kind) {
  return std::string(traits_of(kind).name) + ": ";
}

/// Publishes what was found. The board keeps the last FindingRing::kKept of all calls.
void publish(FindingRing& ring, const Board::Finding& finding) noexcept;

struct PublishedFinding {
  std::uint64_t order = 0;
  std::uint64_t at = 0;
  Board::Verdict verdict;
};
/// What was published first on a call, or last.
enum class Which { first, last };
[[nodiscard]] std::optional<PublishedFinding> published(const FindingRing& ring, std::uint64_t key,
                                                        std::uint64_t number, Which which);
/// The first verdict on a call.
[[nodiscard]] std::optional<Board::Verdict> published(const BoardMemory& memory, std::uint64_t key,
                                                      std::uint64_t number);

/// Allocates pieces of an arena, in words. First fit; free neighbours are merged.
class Arena {
 public:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  /// The offset of `size` free words; kNone if no piece is large enough.
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

/// The size of a group's entry, in words.
[[nodiscard]] constexpr std::uint64_t entry_words(std::size_t members) noexcept {
  return 1 + members * sizeof(MemberWords) / sizeof(Word);
}

/// A Board's memory, and the books of its workers' taken seats and groups. A worker's part belongs
/// to one Board, so these books are private to it. Thread-safe.
struct BoardState : std::enable_shared_from_this<BoardState>, private NonCopyable {
  explicit BoardState(BoardMemory memory);
  /// Leaves its workers' parts to others.
  ~BoardState();

  [[nodiscard]] std::uint32_t take_seat(int worker, std::string_view name);
  void free_seat(int worker, std::uint32_t index) noexcept;

  [[nodiscard]] std::shared_ptr<Board::Group> hold_group(int worker, std::uint64_t key,
                                                         std::span<const GroupMember> members);
  /// The last holder of the group has let it go.
  void release_group(int worker, std::uint64_t key) noexcept;

  BoardMemory memory;

 private:
  struct Registered {
    std::uint32_t slot = 0;
    std::uint64_t offset = 0;
    std::weak_ptr<Board::Group> group;
  };
  struct Books {
    bool owned = false;
    std::set<std::uint32_t> free_seats;
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

struct Board::Group {
  std::shared_ptr<BoardState> state;
  int worker;
  std::uint64_t key;
  MemberWords* entry;
  int size;

  ~Group() { state->release_group(worker, key); }
};

}  // namespace lockstep::watch
