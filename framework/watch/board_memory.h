#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "framework/base/pages.h"
#include "framework/watch/board.h"

namespace lockstep::watch {

/// The memory of a Board: what lies where, and how it is read while its owners write. All of it is
/// Words, all zero at first. What belongs together has a version, which is odd while it is written:
/// who reads it takes the version before and after and reads again if it changed.

/// While it lives `version` is odd: its one writer changes what it guards.
class Writing {
 public:
  explicit Writing(Word& version) noexcept : version_(version) { step(); }
  ~Writing() { step(); }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  void step() noexcept { version_.store(version_.load() + 1); }
  Word& version_;
};

/// Writes `text` and a zero behind it; what does not fit is left out for "...".
void write_text(Word* words, std::size_t count, std::string_view text) noexcept;
[[nodiscard]] std::string read_text(const Word* words, std::size_t count);

struct RecordWords {
  Word fingerprint;
  Word text[(CallRecord::kShown + 1) / sizeof(Word)];
};

/// What a member does. Messages name the states in this order.
enum class SeatState : std::uint64_t { free, running, map, returned, waiting, threw };

struct SeatWords {
  Word version;
  Word state;
  /// The call: its group's key, and its number there from 1. They stay when it ends: who has thrown
  /// out of a call has these, and `finished` is 0 or 1 for whether it was completed.
  Word key;
  Word number;
  Word completed;
  /// Of the map it is in.
  Word children;
  /// How many calls it has finished, and which of the records is the last; the other one is what it
  /// does now: the call, the map, or what it has thrown.
  Word finished;
  Word last;
  Word name[8];
  RecordWords records[2];
};
static_assert(sizeof(SeatWords) == 1024);

/// A member in a group's entry. An entry is a word with the number of members, then these.
struct MemberWords {
  Word id;
  Word elders[3];
  Word worker;
  /// In how many calls it has arrived; counted only in the entry of its own worker.
  Word arrived;
};

struct WorkerWords {
  static constexpr std::size_t kArenaWords = Board::kArenaBytes / sizeof(Word);

  /// The Board that uses this.
  Word owner;
  /// How many of the seats and of the groups have ever been used: the rest is not touched.
  Word seats_used;
  Word groups_used;
  /// How often members have looked after their waits.
  Word looks;

  /// Of each seat, guarded by its version; beside each other, to be searched.
  Word ids[Board::kSeats];
  Word parents[Board::kSeats];

  /// Of each group: the key (0 for none), the version that guards the rest and the entry, where in
  /// the arena that is, and whether someone here holds it. One that is not held stays for the
  /// members elsewhere which have yet to see who has arrived.
  Word keys[Board::kGroups];
  Word versions[Board::kGroups];
  Word offsets[Board::kGroups];
  Word held[Board::kGroups];

  alignas(4096) SeatWords seats[Board::kSeats];
  Word arena[kArenaWords];

  /// The indices of the seats that have ever been used.
  [[nodiscard]] auto used_seats() const noexcept {
    const auto used = std::min<std::uint64_t>(seats_used.load(), Board::kSeats);
    return std::views::iota(std::uint32_t{0}, static_cast<std::uint32_t>(used));
  }
};

/// A verdict on a call, for all who wait in it.
struct PublishedWords {
  Word version;
  Word order;  ///< the least of those on one call is the one that counts; 0 for none
  Word key;
  Word number;
  Word kind;
  Word settled;
  Word text[506];
};
static_assert(sizeof(PublishedWords) == 4096);

/// The last verdicts, in a ring.
struct PublicWords {
  static constexpr std::size_t kKept = 64;
  alignas(4096) Word begun;  ///< how many ever
  Word published;            ///< of these, how many have been written
  alignas(4096) PublishedWords verdicts[kKept];
};

/// The mapped memory of a Board.
class BoardMemory {
 public:
  explicit BoardMemory(int workers);
  BoardMemory(int workers, int descriptor, std::size_t offset);

  [[nodiscard]] int workers() const noexcept { return workers_; }
  [[nodiscard]] WorkerWords& worker(int worker) const noexcept;
  [[nodiscard]] PublicWords& common() const noexcept;

 private:
  int workers_;
  std::shared_ptr<std::byte> data_;
};

/// Which of a worker's seats.
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
  /// Of what it does now.
  std::uint64_t fingerprint = 0;
};

/// None if it is free, or does not stop changing: nothing is known of it.
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

/// None if the worker has no such group. One that does not stop changing looks so, too.
[[nodiscard]] std::optional<GroupView> find_group(const WorkerWords& worker, std::uint64_t key);
[[nodiscard]] MemberWords* members_at(WorkerWords& worker, std::uint64_t offset) noexcept;
/// The members; empty if the group has gone.
[[nodiscard]] std::vector<GroupMember> read_members(WorkerWords& worker, const GroupView& group);

/// A call number that stands for a member's end: `key` is then the member's id, and the verdict is
/// what it ended with.
inline constexpr std::uint64_t kOwnEnd = ~std::uint64_t{0};
/// How the text of a seat begins whose member has fallen out of step.
inline constexpr std::string_view kMismatch = "CollectiveMismatch: ";

/// Puts a verdict on call `number` of the group `key` where all members of the job find it. The
/// first on a call counts; the board keeps the last PublicWords::kKept of all calls.
void publish(PublicWords& words, std::uint64_t key, std::uint64_t number,
             const Board::Verdict& verdict) noexcept;

/// The verdict on a call, if one was published.
[[nodiscard]] std::optional<Board::Verdict> published(const PublicWords& words, std::uint64_t key,
                                                      std::uint64_t number);

/// Pieces of an arena, in words. First fit; neighbours that are free are one.
class Arena {
 public:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  /// Where `size` words lie; kNone if no piece is large enough.
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

/// A Board's memory, and which seats and groups of its workers are taken: one Board owns a worker's
/// part, so that it keeps that to itself. Thread-safe.
struct BoardState : std::enable_shared_from_this<BoardState> {
  explicit BoardState(BoardMemory memory);
  /// Leaves its workers' parts to others.
  ~BoardState();
  BoardState(const BoardState&) = delete;
  BoardState& operator=(const BoardState&) = delete;

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
    /// When there are so many groups, those that nobody holds any more are swept.
    std::size_t sweep_at = 64;
  };

  Books& books(int worker);
  Registered add_group(int worker, std::uint64_t key, std::span<const GroupMember> members);
  void remove_group(int worker, std::uint64_t key) noexcept;
  [[nodiscard]] bool is_held_elsewhere(int worker, std::uint64_t key, std::uint64_t offset) const;
  void sweep(int worker) noexcept;

  std::mutex mutex_;
  std::vector<Books> books_;
  std::uint64_t token_ = 0;
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
