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
#include "framework/calls/call_table.h"
#include "framework/calls/job_watch.h"
#include "tests/calls/table_world.h"

namespace lockstep::testing {

/// Two hosts with call tables of their own, and the same number of workers with a replica each. The
/// launchers exchange the messages of their JobWatches one by one.
class TwoHosts {
 public:
  explicit TwoHosts(int workers_each = 1) : each_(workers_each) {
    const std::vector<Range> workers{{0, each_}, {each_, each_}};
    for (std::size_t host = 0; host < 2; ++host) {
      tables_.push_back(std::make_unique<calls::CallTable>(2 * each_));
      tables_.back()->set_local(static_cast<int>(workers[host].offset), each_, replicas());
      watches_.push_back(std::make_unique<calls::JobWatch>(
          host, workers, replicas(), *tables_.back(),
          [this](std::size_t to, const calls::TableMessage& message) {
            sent_[to].push_back(message);
          }));
    }
    for (int i = 0; i < replicas(); ++i) {
      members_.push_back({.id = 1000 + static_cast<std::uint64_t>(i), .worker = i});
      slots_.push_back(table_of(i).take_slot(i, members_.back().id, 0, str(i)));
    }
  }

  [[nodiscard]] int replicas() const { return 2 * each_; }
  calls::CallTable& table(int host) { return *tables_[static_cast<std::size_t>(host)]; }
  calls::CallTable& table_of(int replica) { return table(replica / each_); }
  calls::CallTable::Slot& slot(int replica) { return *slots_[static_cast<std::size_t>(replica)]; }
  void free_slot(int replica) { slots_[static_cast<std::size_t>(replica)].reset(); }
  void sit(int replica, std::uint64_t id, std::uint64_t parent, const std::string& name) {
    slots_.push_back(table_of(replica).take_slot(replica, id, parent, name));
  }

  std::shared_ptr<calls::CallTable::Group> group(int replica, const std::vector<int>& members,
                                                 std::uint64_t salt = 1) {
    std::vector<calls::GroupMember> all;
    std::uint64_t key = salt;
    for (const int member : members) {
      all.push_back(members_[static_cast<std::size_t>(member)]);
      key = key * 1000 + static_cast<std::uint64_t>(member) + 1;
    }
    return table_of(replica).group(replica, key, all);
  }
  void start(int replica, const std::vector<int>& members, std::string_view text,
             std::uint64_t salt = 1) {
    held_.push_back(group(replica, members, salt));
    const auto place = std::ranges::find(members, replica) - members.begin();
    slot(replica).start(*held_.back(), static_cast<int>(place), call_of(text));
  }
  void let_go() { held_.clear(); }

  calls::JobWatch& watch(std::size_t host) { return *watches_[host]; }
  /// Returns the messages that were sent to a host and have not come yet.
  std::deque<calls::TableMessage>& sent(std::size_t to) { return sent_[to]; }
  void deliver(std::size_t to) {
    const calls::TableMessage message = sent_[to].front();
    sent_[to].pop_front();
    watch(to).hear(1 - to, message);
  }
  void deliver_all() {
    for (std::size_t to = 0; !sent_[0].empty() || !sent_[1].empty(); to = 1 - to) {
      while (!sent_[to].empty()) deliver(to);
    }
  }
  /// True when the next reading has begun: the one before has shown a reason for a deadlock report.
  bool suspects() { return !sent_[1].empty(); }
  /// Lets host 0's launcher read all call tables, once, and tell both hosts its findings.
  void read() {
    if (sent_[1].empty()) watch(0).want(1);
    deliver(1);
    while (!sent_[0].empty()) deliver(0);
    while (!sent_[1].empty() && !std::holds_alternative<calls::TableLook>(sent_[1].front())) {
      deliver(1);
    }
  }
  std::string found(int replica, bool settled_only = false) {
    const auto report = table_of(replica).examine(slot(replica), settled_only);
    return report ? report->text : "";
  }
  /// Returns the text that `replica` finds after two readings.
  std::string found_in_the_end(int replica, bool settled_only = false) {
    for (int i = 0; i < 2; ++i) read();
    return found(replica, settled_only);
  }
  std::string absent(int replica) { return table_of(replica).absentees(slot(replica)); }

 private:
  int each_;
  std::vector<std::unique_ptr<calls::CallTable>> tables_;
  std::vector<std::unique_ptr<calls::JobWatch>> watches_;
  std::array<std::deque<calls::TableMessage>, 2> sent_;
  std::vector<calls::GroupMember> members_;
  std::vector<std::unique_ptr<calls::CallTable::Slot>> slots_;
  std::vector<std::shared_ptr<calls::CallTable::Group>> held_;
};

inline const std::vector<int> kPair = {0, 1};
inline const std::vector<int> kFour = {0, 1, 2, 3};

}  // namespace lockstep::testing
