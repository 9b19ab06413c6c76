#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/text.h"
#include "framework/watch/board.h"
#include "tests/catch.h"

namespace lockstep::testing {

/// Calls as members make them.
inline constexpr std::string_view kPsum = "psum over 'data' at model.cpp:44 with (64, 10) float32";
inline constexpr std::string_view kPmean =
    "pmean over 'data' at model.cpp:41 with (64, 10) float32";
inline constexpr std::string_view kPmap = "pmap over 'batch' at x.cpp:7";

/// The calls of a test agree exactly if their texts are the same.
inline watch::CallRecord call_of(std::string_view text) {
  return watch::CallRecord{std::hash<std::string_view>{}(text), std::string(text)};
}

/// Replicas on a board, moved by one thread: each of a worker of its own, or all of one.
class BoardWorld {
 public:
  enum class Workers { one, each };

  BoardWorld(int replicas, Workers workers) : BoardWorld(replicas, workers, replicas) {}
  /// Only the first `seated` of them have their seats.
  BoardWorld(int replicas, Workers workers, int seated)
      : workers_(workers), board_(workers == Workers::one ? 1 : replicas) {
    for (int i = 0; i < replicas; ++i) {
      members_.push_back({.id = static_cast<std::uint64_t>(i) + 1, .worker = worker_of(i)});
      seats_.emplace_back();
      if (i < seated) sit(i, str(i));
    }
  }

  watch::Board& board() { return board_; }
  watch::Board::Seat& seat(int member) { return *seats_.at(static_cast<std::size_t>(member)); }
  void free_seat(int member) { seats_.at(static_cast<std::size_t>(member)).reset(); }

  /// A member that the map of `parent` runs, on its worker. Its number, for all that follows.
  int add_child(int parent, bool has_seat = true) {
    const watch::GroupMember& of = members_.at(static_cast<std::size_t>(parent));
    members_.push_back({.id = members_.size() + 1,
                        .worker = of.worker,
                        .elders = {of.id, of.elders[0], of.elders[1]}});
    seats_.emplace_back();
    const int child = static_cast<int>(members_.size()) - 1;
    if (has_seat) sit(child, str("(", parent, ", ", child, ")"));
    return child;
  }
  void sit(int member, const std::string& name) {
    const watch::GroupMember& who = members_.at(static_cast<std::size_t>(member));
    seats_.at(static_cast<std::size_t>(member)) =
        board_.take_seat(who.worker, who.id, who.elders[0], name);
  }

  /// `member` waits in `text` on the group of `members`.
  void start(int member, const std::vector<int>& members, std::string_view text) {
    std::vector<watch::GroupMember> group;
    int place = 0;
    std::uint64_t key = 17;
    for (std::size_t i = 0; i < members.size(); ++i) {
      group.push_back(members_.at(static_cast<std::size_t>(members[i])));
      key = key * 1000 + static_cast<std::uint64_t>(members[i]);
      if (members[i] == member) place = static_cast<int>(i);
    }
    const int worker = members_.at(static_cast<std::size_t>(member)).worker;
    held_.push_back(board_.group(worker, key, group));
    seat(member).start(*held_.back(), place, call_of(text));
  }
  void start_all(const std::vector<int>& members, std::string_view text) {
    for (const int member : members) start(member, members, text);
  }
  void finish_all(const std::vector<int>& members) {
    for (const int member : members) seat(member).finish();
  }

  /// What `member` finds: "" for nothing, else "mismatch: ", "failed: " or "lost: " and the text.
  std::string found(int member, bool settled_only = false) {
    const auto verdict = board_.examine(seat(member), settled_only);
    if (!verdict) return "";
    const char* const kind = verdict->kind == ErrorKind::mismatch  ? "mismatch: "
                             : verdict->kind == ErrorKind::aborted ? "failed: "
                                                                   : "lost: ";
    return kind + verdict->text;
  }

 private:
  [[nodiscard]] std::int32_t worker_of(int replica) const {
    return workers_ == Workers::one ? 0 : replica;
  }

  Workers workers_;
  watch::Board board_;
  std::vector<watch::GroupMember> members_;
  std::vector<std::unique_ptr<watch::Board::Seat>> seats_;
  std::vector<std::shared_ptr<watch::Board::Group>> held_;
};

/// Runs the rest of a test case with either.
inline BoardWorld::Workers any_workers() {
  return GENERATE(BoardWorld::Workers::one, BoardWorld::Workers::each);
}

}  // namespace lockstep::testing
