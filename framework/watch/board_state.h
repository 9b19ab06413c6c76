#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "framework/watch/board.h"
#include "framework/watch/board_memory.h"

namespace lockstep {

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

}  // namespace lockstep
