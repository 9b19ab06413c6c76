#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/watch/board.h"
#include "framework/watch/job_watch.h"
#include "tests/watch/board_world.h"

namespace lockstep::testing {

/// Two hosts with boards of their own, and the same number of workers with a replica each. The
/// launchers tell each other what a JobWatch sends, message by message.
class TwoHosts {
 public:
  explicit TwoHosts(int workers_each = 1) : each_(workers_each) {
    const std::vector<Range> workers{{0, each_}, {each_, each_}};
    for (std::size_t host = 0; host < 2; ++host) {
      boards_.push_back(std::make_unique<watch::Board>(2 * each_));
      boards_.back()->set_local(static_cast<int>(workers[host].offset), each_, replicas());
      watches_.push_back(std::make_unique<watch::JobWatch>(
          host, workers, replicas(), *boards_.back(),
          [this](std::size_t to, const watch::BoardMessage& message) {
            sent_[to].push_back(message);
          }));
    }
    for (int i = 0; i < replicas(); ++i) {
      members_.push_back({.id = 1000 + static_cast<std::uint64_t>(i), .worker = i});
      seats_.push_back(board_of(i).take_seat(i, members_.back().id, 0, str(i)));
    }
  }

  [[nodiscard]] int replicas() const { return 2 * each_; }
  watch::Board& board(int host) { return *boards_[static_cast<std::size_t>(host)]; }
  watch::Board& board_of(int replica) { return board(replica / each_); }
  watch::Board::Seat& seat(int replica) { return *seats_[static_cast<std::size_t>(replica)]; }
  void free_seat(int replica) { seats_[static_cast<std::size_t>(replica)].reset(); }
  void sit(int replica, std::uint64_t id, std::uint64_t parent, const std::string& name) {
    seats_.push_back(board_of(replica).take_seat(replica, id, parent, name));
  }

  std::shared_ptr<watch::Board::Group> group(int replica, const std::vector<int>& members,
                                             std::uint64_t salt = 1) {
    std::vector<watch::GroupMember> all;
    std::uint64_t key = salt;
    for (const int member : members) {
      all.push_back(members_[static_cast<std::size_t>(member)]);
      key = key * 1000 + static_cast<std::uint64_t>(member) + 1;
    }
    return board_of(replica).group(replica, key, all);
  }
  void start(int replica, const std::vector<int>& members, std::string_view text,
             std::uint64_t salt = 1) {
    held_.push_back(group(replica, members, salt));
    const auto place = std::ranges::find(members, replica) - members.begin();
    seat(replica).start(*held_.back(), static_cast<int>(place), call_of(text));
  }
  void let_go() { held_.clear(); }

  watch::JobWatch& watch(std::size_t host) { return *watches_[host]; }
  /// What was sent to a host and has not come yet.
  std::deque<watch::BoardMessage>& sent(std::size_t to) { return sent_[to]; }
  void deliver(std::size_t to) {
    const watch::BoardMessage message = sent_[to].front();
    sent_[to].pop_front();
    watch(to).hear(1 - to, message);
  }
  void deliver_all() {
    for (std::size_t to = 0; !sent_[0].empty() || !sent_[1].empty(); to = 1 - to) {
      while (!sent_[to].empty()) deliver(to);
    }
  }
  /// Whether the next reading has begun: the one before has shown a reason for a verdict.
  bool suspects() { return !sent_[1].empty(); }
  /// Host 0's launcher reads all boards, once, and tells both hosts what follows.
  void read() {
    if (sent_[1].empty()) watch(0).want(1);
    deliver(1);
    while (!sent_[0].empty()) deliver(0);
    while (!sent_[1].empty() && !std::holds_alternative<watch::BoardLook>(sent_[1].front())) {
      deliver(1);
    }
  }
  std::string found(int replica, bool settled_only = false) {
    const auto verdict = board_of(replica).examine(seat(replica), settled_only);
    return verdict ? verdict->text : "";
  }
  /// What it finds after two readings.
  std::string found_in_the_end(int replica, bool settled_only = false) {
    for (int i = 0; i < 2; ++i) read();
    return found(replica, settled_only);
  }
  std::string absent(int replica) { return board_of(replica).absentees(seat(replica)); }

 private:
  int each_;
  std::vector<std::unique_ptr<watch::Board>> boards_;
  std::vector<std::unique_ptr<watch::JobWatch>> watches_;
  std::array<std::deque<watch::BoardMessage>, 2> sent_;
  std::vector<watch::GroupMember> members_;
  std::vector<std::unique_ptr<watch::Board::Seat>> seats_;
  std::vector<std::shared_ptr<watch::Board::Group>> held_;
};

inline const std::vector<int> kPair = {0, 1};
inline const std::vector<int> kFour = {0, 1, 2, 3};

}  // namespace lockstep::testing
