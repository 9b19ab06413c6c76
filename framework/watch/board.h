#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// How the text of a call that is differentiated goes on after that of one that is not.
inline constexpr std::string_view kDifferentiated = ", differentiated";

/// What a member calls, or the map that it is in, as others compare and print it.
struct CallRecord {
  static constexpr std::size_t kTextSize = 440;

  /// Equal exactly if two calls agree: operation, axes, groups, dtypes, shapes, options and whether
  /// they are differentiated, or which call's backward they are; not where they are written.
  std::uint64_t fingerprint = 0;
  /// For example "psum over 'data' at model.cpp:44 with (64, 10) float32"; ends with a zero.
  std::array<char, kTextSize> text{};

  /// A record of `fingerprint` and `text`, which is cut with "..." where it is too long and at a
  /// zero.
  [[nodiscard]] static CallRecord of(std::uint64_t fingerprint, std::string_view text) noexcept;
  [[nodiscard]] std::string_view view() const noexcept;
};

/// A member of a group, as all of its workers know it. Ids are never 0; who has no parent has 0.
struct GroupMember {
  std::uint64_t id = 0;
  /// The member whose map runs this one: asked while this one has no seat.
  std::uint64_t parent = 0;
  /// The worker that runs it, where it takes its seat.
  std::int32_t worker = 0;
  /// The parent's parent and that one's, for maps in maps: asked, in order, while there is no seat
  /// for the parent either.
  std::array<std::uint64_t, 2> elders{};

  bool operator==(const GroupMember&) const = default;
};

struct BoardState;
struct MemberWords;
struct SeatWords;

/// Where the members of a job (the replicas of its maps, down to the lanes of a vmap) publish what
/// they are doing, so that one that waits can find out whether what it waits for can ever come.
/// Every member has a seat with the worker that runs it: a process, or a thread of a job in
/// threads. The memory is private to a process, or a part of the job's HostMemory. Making it costs
/// microseconds whatever its size: of the 40 MiB of addresses a worker takes, only what is used
/// becomes memory.
///
/// A call on a group completes when every member of the group has arrived in it; members that
/// never come make it hang. A verdict says that this is certain: it is never a false alarm, because
/// a seat says that its member waits before the member can be of use to anyone, and a verdict is
/// given only if nothing on the way to it has changed when read again. What is known is not
/// complete: a member that runs may still do anything.
///
/// What callers see to:
/// - Ids are unique in the job and for good: members of two calls of a map differ in theirs.
/// - A group's key says who its members are, and is not used again once all workers have let it go.
/// - A worker's part is used through one Board: a second throws CommError.
/// - A map keeps its children's seats until all of them are done, and frees them before it leaves.
/// Any thread may use a Board. Seats and groups keep its memory: they may live longer.
class Board {
 public:
  class Group;
  class Seat;
  struct Verdict {
    /// mismatch: the members are out of step. failed: one that others wait for has thrown. lost:
    /// all that it has thrown is that it has lost a replica, which therefore these others have,
    /// too.
    enum class Kind { mismatch, failed, lost };
    Kind kind = Kind::mismatch;
    std::string text;
    /// Whether all of those that the text could be about are in it: none of them is still running.
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

  /// The group `key` with a worker, for its members there: the same object for all of them for as
  /// long as one holds it. `members` in the order of their places; their workers are of this board.
  /// CommError when the worker has no room (kGroups of kArenaBytes), or when the key stands for
  /// other members already.
  [[nodiscard]] std::shared_ptr<Group> group(int worker, std::uint64_t key,
                                             std::span<const GroupMember> members);

  /// A seat for member `id`, running. `name` is what messages call it: "2", or "(1, 0)". CommError
  /// when all kSeats of the worker are taken.
  [[nodiscard]] std::unique_ptr<Seat> take_seat(int worker, std::uint64_t id, std::uint64_t parent,
                                                std::string_view name);

  /// Why the call that `waiting` waits in can never complete, if that is certain. None if it does
  /// not wait, too. By any thread that keeps `waiting` alive. A verdict is published for the calls
  /// that it is about: whoever waits in one of them then gets the same one, also when those it was
  /// found from have gone on. With `settled_only`, none that is not settled.
  [[nodiscard]] std::optional<Verdict> examine(const Seat& waiting,
                                               bool settled_only = false) const;

  /// The verdict that was published on the call that `waiting` waits in. One load while none was on
  /// any.
  [[nodiscard]] std::optional<Verdict> published(const Seat& waiting) const;

  /// Who has not arrived in the call that `waiting` waits in, what they are doing and the last
  /// collective each has finished, for a Timeout. "" if it does not wait or all have arrived.
  [[nodiscard]] std::string absentees(const Seat& waiting) const;

  /// Workers are watched from outside: by `looked`, which a worker says of itself as long as it
  /// looks after its members' waits, and by `activity`, which changes whenever it does so and
  /// whenever one of its members does anything that the board shows.
  void looked(int worker) noexcept;
  [[nodiscard]] std::uint64_t activity(int worker) const;
  /// Of a member of the worker that waits in a call which others have not come to: what it waits
  /// in, and absentees(). "" if there is none. Any process may ask, also one that is no worker.
  [[nodiscard]] std::string pending(int worker) const;

 private:
  std::shared_ptr<BoardState> state_;
};

/// A group of members as one worker has it registered.
class Board::Group {
 public:
  /// Use Board::group().
  Group(std::shared_ptr<BoardState> state, int worker, std::uint64_t key, std::uint64_t life,
        MemberWords* entry, int size);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] std::uint64_t key() const noexcept { return key_; }

 private:
  friend class Seat;
  std::shared_ptr<BoardState> state_;
  int worker_;
  std::uint64_t key_;
  std::uint64_t life_;
  MemberWords* entry_;
  int size_;
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

  /// The member waits in its next call on `group`, where it is member number `place`: to be called
  /// before the member can be of use to any other in that call. `group` is that of the same worker
  /// and is held until the call ends. ValueError if it has no such place.
  void start(Group& group, int place, const CallRecord& call);
  /// It runs again; the call becomes the last that it has finished. A call that ended by throwing
  /// has not: say threw(), or start() the next.
  void finish() noexcept;

  /// Until leave_map() it waits for `children` members whose parent it is and who take their seats
  /// before or after this.
  void enter_map(const CallRecord& what, int children) noexcept;
  void leave_map() noexcept;

  /// It will never call again. Known until the seat is freed.
  void returned() noexcept;
  void threw(std::string_view text) noexcept;
  /// The same with the CollectiveMismatch of which `verdict` is the text: whoever waits for the
  /// member ends with it, too.
  void fell_out(std::string_view verdict) noexcept;

 private:
  friend class Board;
  std::shared_ptr<BoardState> state_;
  int worker_;
  std::uint32_t index_;
  SeatWords* words_;
};

}  // namespace lockstep
