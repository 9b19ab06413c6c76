#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "framework/base/text.h"
#include "framework/calls/call_table.h"
#include "framework/comm/shared/host_memory.h"
#include "tests/calls/table_world.h"
#include "tests/catch.h"
#include "tests/support/settings.h"

using namespace lockstep;
using testing::call_of;

namespace {

constexpr int kReplicas = 5;
constexpr int kChildren = 2;
constexpr int kEvents = 2000;

/// An event of some replicas: a collective, or a map in which each runs children who do two.
struct Event {
  std::vector<int> replicas;
  bool is_map = false;
  /// How many have arrived in the collective, or in each of the children's.
  std::array<std::atomic<int>, 1 + kReplicas + kChildren> arrived{};
};

enum class Layout { one_worker, worker_each, table_each };

/// A program that is in step, run by threads that examine each other all the time: every replica
/// goes through its events in the same order.
class InStep {
 public:
  InStep(Layout layout, unsigned seed) : layout_(layout), events_(kEvents) {
    std::mt19937 random(seed);
    for (Event& event : events_) {
      while (event.replicas.empty()) {
        for (int i = 0; i < kReplicas; ++i) {
          if (random() % 2 == 0) event.replicas.push_back(i);
        }
      }
      event.is_map = random() % 40 == 0;
    }
    const int workers = layout == Layout::one_worker ? 1 : kReplicas;
    const int memory = comm::HostMemory::make_memory(workers);
    for (int i = 0; i < kReplicas; ++i) {
      if (layout == Layout::table_each || i == 0) {
        tables_.push_back(comm::HostMemory(workers, memory).call_table());
      } else {
        tables_.push_back(tables_.front());
      }
    }
    ::close(memory);
    for (int i = 0; i < kReplicas; ++i) {
      const calls::GroupMember self = replica(i);
      slots_.push_back(table(i).take_slot(self.worker, self.id, 0, str(i)));
    }
  }

  void run() {
    std::vector<std::thread> threads;
    for (int i = 0; i < kReplicas; ++i) {
      threads.emplace_back([this, i] { run_replica(i); });
    }
    std::thread examiner([this] {
      while (!over_) {
        for (int i = 0; i < kReplicas; ++i) {
          examine(i, *slots_[static_cast<std::size_t>(i)], /*settled_only=*/true);
        }
      }
    });
    for (std::thread& thread : threads) thread.join();
    over_ = true;
    examiner.join();
  }

  std::vector<std::string> alarms() const { return alarms_; }
  std::vector<std::string> reports() const { return reports_; }
  int examined() const { return examined_; }

 private:
  using Groups = std::map<std::uint64_t, std::shared_ptr<calls::CallTable::Group>>;

  calls::CallTable& table(int replica) { return *tables_[static_cast<std::size_t>(replica)]; }

  [[nodiscard]] calls::GroupMember replica(int number) const {
    return {.id = static_cast<std::uint64_t>(number) + 1,
            .worker = layout_ == Layout::one_worker ? 0 : number};
  }
  [[nodiscard]] calls::GroupMember child(std::size_t event, int parent, int number) const {
    calls::GroupMember self = replica(parent);
    self.ancestors[0] = self.id;
    self.id = (event + 1) * 1000 + self.id * 10 + static_cast<std::uint64_t>(number);
    return self;
  }

  void examine(int replica, const calls::CallTable::Slot& slot, bool settled_only) {
    const auto report = table(replica).examine(slot, settled_only);
    const std::string absent = table(replica).absentees(slot);
    ++examined_;
    if (report && !may_fail_) {
      const std::lock_guard lock(mutex_);
      alarms_.push_back(report->text + " [" + absent + "]");
    }
  }

  void collective(int replica, calls::CallTable::Slot& slot, std::uint64_t self,
                  const std::vector<calls::GroupMember>& members, std::uint64_t generation,
                  const std::string& text, std::atomic<int>& arrived, Groups& groups) {
    std::uint64_t key = generation;
    int place = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
      key = key * 0x9E3779B97F4A7C15U + members[i].id;
      if (members[i].id == self) place = static_cast<int>(i);
    }
    auto& group = groups[key];
    if (group == nullptr) group = table(replica).group(slot_worker(replica), key, members);
    slot.start(*group, place, call_of(text));
    ++arrived;
    while (arrived < static_cast<int>(members.size())) {
      examine(replica, slot, /*settled_only=*/false);
      std::this_thread::yield();
    }
    slot.finish();
  }

  void run_child(std::size_t at, int parent, int number) {
    Event& event = events_[at];
    const calls::GroupMember self = child(at, parent, number);
    const auto slot = table(parent).take_slot(self.worker, self.id, self.ancestors[0],
                                              str("(", parent, ", ", number, ")"));
    Groups groups;
    std::vector<calls::GroupMember> siblings;
    for (int i = 0; i < kChildren; ++i) siblings.push_back(child(at, parent, i));
    std::vector<calls::GroupMember> peers;
    for (const int other : event.replicas) peers.push_back(child(at, other, number));
    const auto own = static_cast<std::size_t>(parent);
    const auto across = static_cast<std::size_t>(kReplicas + number);
    collective(parent, *slot, self.id, siblings, 1, "psum", event.arrived[own], groups);
    collective(parent, *slot, self.id, peers, 2, "pmean", event.arrived[across], groups);
    slot->returned();
  }

  void run_map(std::size_t at, int replica, calls::CallTable::Slot& slot) {
    slot.enter_map(call_of(str("pmap of event ", at)), kChildren);
    std::vector<std::thread> threads;
    for (int i = 0; i < kChildren; ++i) {
      threads.emplace_back([this, at, replica, i] { run_child(at, replica, i); });
    }
    for (std::thread& thread : threads) thread.join();
    slot.leave_map();
  }

  void run_replica(int self) {
    calls::CallTable::Slot& slot = *slots_[static_cast<std::size_t>(self)];
    Groups groups;
    for (std::size_t at = 0; at < events_.size(); ++at) {
      // Released groups leave their memory to others.
      if (at % 50 == 0) groups.clear();
      Event& event = events_[at];
      if (std::ranges::count(event.replicas, self) == 0) continue;
      if (event.is_map) {
        run_map(at, self, slot);
        continue;
      }
      std::vector<calls::GroupMember> members;
      for (const int other : event.replicas) members.push_back(replica(other));
      collective(self, slot, replica(self).id, members, 1000 + at / 50, str("psum ", at),
                 event.arrived.back(), groups);
    }
    fall_out_of_step(self, slot);
  }

  // The last replica returns, and the others must find that out.
  void fall_out_of_step(int self, calls::CallTable::Slot& slot) {
    ++ready_;
    while (ready_ < kReplicas) std::this_thread::yield();
    may_fail_ = true;
    if (self == kReplicas - 1) return slot.returned();
    std::vector<calls::GroupMember> members;
    for (int i = 0; i < kReplicas; ++i) members.push_back(replica(i));
    const auto group = table(self).group(slot_worker(self), 77, members);
    slot.start(*group, self, call_of("all"));
    ++called_;
    while (called_ < kReplicas - 1) std::this_thread::yield();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    std::string text;
    while (text.empty() && std::chrono::steady_clock::now() < until) {
      if (const auto report = table(self).examine(slot, true)) text = report->text;
      std::this_thread::yield();
    }
    const std::lock_guard lock(mutex_);
    reports_.push_back(text);
  }

  [[nodiscard]] int slot_worker(int number) const { return replica(number).worker; }

  Layout layout_;
  std::deque<Event> events_;
  std::vector<std::shared_ptr<calls::CallTable>> tables_;
  std::vector<std::unique_ptr<calls::CallTable::Slot>> slots_;
  std::atomic<int> examined_{0};
  std::atomic<int> ready_{0};
  std::atomic<int> called_{0};
  std::atomic<bool> may_fail_{false};
  std::atomic<bool> over_{false};
  std::mutex mutex_;  // guards the rest
  std::vector<std::string> alarms_;
  std::vector<std::string> reports_;
};

}  // namespace

TEST_CASE("replicas in step are never said to be out of it", "[call table]") {
  const auto layout = GENERATE(Layout::one_worker, Layout::worker_each, Layout::table_each);
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  InStep program(layout, seed);
  program.run();
  const std::vector<std::string> alarms = program.alarms();
  CHECK(alarms.size() == 0);
  if (!alarms.empty()) FAIL_CHECK(alarms.front());
  CHECK(program.examined() > kEvents);
  CHECK(program.reports() ==
        std::vector<std::string>(kReplicas - 1,
                                 "replica 4 has returned while replicas 0, 1, 2 and 3 called all"));
}

TEST_CASE("a settled report names a member that arrives while the call table is read",
          "[call table][slow]") {
  int wrong = 0;
  testing::Sample sample("members that are late");
  for (int i = 0; i < 3000; ++i) {
    if (!sample.next()) continue;
    calls::CallTable table(1);
    const std::array<calls::GroupMember, 3> members = {
        calls::GroupMember{.id = 1}, calls::GroupMember{.id = 2}, calls::GroupMember{.id = 3}};
    const auto first = table.take_slot(0, 1, 0, "0");
    const auto second = table.take_slot(0, 2, 0, "1");
    const auto third = table.take_slot(0, 3, 0, "2");
    const auto group = table.group(0, 5, members);
    first->start(*group, 0, call_of("all"));
    third->returned();
    std::thread late([&] { second->start(*group, 1, call_of("all")); });
    std::optional<calls::CallTable::DeadlockReport> report;
    while (!report) report = table.examine(*first, /*settled_only=*/true);
    late.join();
    wrong += report->text == "replica 2 has returned while replicas 0 and 1 called all" ? 0 : 1;
  }
  CHECK(wrong == 0);
}
