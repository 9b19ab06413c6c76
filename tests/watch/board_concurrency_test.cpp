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
#include "framework/comm/shared/host_memory.h"
#include "framework/watch/board.h"
#include "tests/catch.h"
#include "tests/support/settings.h"
#include "tests/watch/board_world.h"

using namespace lockstep;
using testing::call_of;

namespace {

constexpr int kReplicas = 5;
constexpr int kChildren = 2;
constexpr int kEvents = 2000;

/// What some replicas do together: a collective, or a map in which each runs children who do two.
struct Event {
  std::vector<int> replicas;
  bool is_map = false;
  /// How many have arrived in the collective, or in each of those of the children.
  std::array<std::atomic<int>, 1 + kReplicas + kChildren> arrived{};
};

enum class Layout { one_worker, worker_each, board_each };

/// A program that is in step, run by threads who examine each other all the time: every replica
/// goes through the same events in the same order, those it takes part in.
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
      if (layout == Layout::board_each || i == 0) {
        boards_.push_back(comm::HostMemory(workers, memory).board());
      } else {
        boards_.push_back(boards_.front());
      }
    }
    ::close(memory);
    for (int i = 0; i < kReplicas; ++i) {
      const watch::GroupMember self = replica(i);
      seats_.push_back(board(i).take_seat(self.worker, self.id, 0, str(i)));
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
          examine(i, *seats_[static_cast<std::size_t>(i)], /*settled_only=*/true);
        }
      }
    });
    for (std::thread& thread : threads) thread.join();
    over_ = true;
    examiner.join();
  }

  std::vector<std::string> alarms() const { return alarms_; }
  std::vector<std::string> verdicts() const { return verdicts_; }
  int examined() const { return examined_; }

 private:
  using Groups = std::map<std::uint64_t, std::shared_ptr<watch::Board::Group>>;

  watch::Board& board(int replica) { return *boards_[static_cast<std::size_t>(replica)]; }

  [[nodiscard]] watch::GroupMember replica(int number) const {
    return {.id = static_cast<std::uint64_t>(number) + 1,
            .worker = layout_ == Layout::one_worker ? 0 : number};
  }
  [[nodiscard]] watch::GroupMember child(std::size_t event, int parent, int number) const {
    watch::GroupMember self = replica(parent);
    self.elders[0] = self.id;
    self.id = (event + 1) * 1000 + self.id * 10 + static_cast<std::uint64_t>(number);
    return self;
  }

  void examine(int replica, const watch::Board::Seat& seat, bool settled_only) {
    const auto verdict = board(replica).examine(seat, settled_only);
    const std::string absent = board(replica).absentees(seat);
    ++examined_;
    if (verdict && !may_fail_) {
      const std::lock_guard lock(mutex_);
      alarms_.push_back(verdict->text + " [" + absent + "]");
    }
  }

  void collective(int replica, watch::Board::Seat& seat, std::uint64_t self,
                  const std::vector<watch::GroupMember>& members, std::uint64_t generation,
                  const std::string& text, std::atomic<int>& arrived, Groups& groups) {
    std::uint64_t key = generation;
    int place = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
      key = key * 0x9E3779B97F4A7C15U + members[i].id;
      if (members[i].id == self) place = static_cast<int>(i);
    }
    auto& group = groups[key];
    if (group == nullptr) group = board(replica).group(seat_worker(replica), key, members);
    seat.start(*group, place, call_of(text));
    ++arrived;
    while (arrived < static_cast<int>(members.size())) {
      examine(replica, seat, /*settled_only=*/false);
      std::this_thread::yield();
    }
    seat.finish();
  }

  void run_child(std::size_t at, int parent, int number) {
    Event& event = events_[at];
    const watch::GroupMember self = child(at, parent, number);
    const auto seat = board(parent).take_seat(self.worker, self.id, self.elders[0],
                                              str("(", parent, ", ", number, ")"));
    Groups groups;
    std::vector<watch::GroupMember> siblings;
    for (int i = 0; i < kChildren; ++i) siblings.push_back(child(at, parent, i));
    std::vector<watch::GroupMember> peers;
    for (const int other : event.replicas) peers.push_back(child(at, other, number));
    const auto own = static_cast<std::size_t>(parent);
    const auto across = static_cast<std::size_t>(kReplicas + number);
    collective(parent, *seat, self.id, siblings, 1, "psum", event.arrived[own], groups);
    collective(parent, *seat, self.id, peers, 2, "pmean", event.arrived[across], groups);
    seat->returned();
  }

  void run_map(std::size_t at, int replica, watch::Board::Seat& seat) {
    seat.enter_map(call_of(str("pmap of event ", at)), kChildren);
    std::vector<std::thread> threads;
    for (int i = 0; i < kChildren; ++i) {
      threads.emplace_back([this, at, replica, i] { run_child(at, replica, i); });
    }
    for (std::thread& thread : threads) thread.join();
    seat.leave_map();
  }

  void run_replica(int self) {
    watch::Board::Seat& seat = *seats_[static_cast<std::size_t>(self)];
    Groups groups;
    for (std::size_t at = 0; at < events_.size(); ++at) {
      // Groups are let go of and others take their memory.
      if (at % 50 == 0) groups.clear();
      Event& event = events_[at];
      if (std::ranges::count(event.replicas, self) == 0) continue;
      if (event.is_map) {
        run_map(at, self, seat);
        continue;
      }
      std::vector<watch::GroupMember> members;
      for (const int other : event.replicas) members.push_back(replica(other));
      collective(self, seat, replica(self).id, members, 1000 + at / 50, str("psum ", at),
                 event.arrived.back(), groups);
    }
    fall_out_of_step(self, seat);
  }

  // The last one returns, which the others must find out.
  void fall_out_of_step(int self, watch::Board::Seat& seat) {
    ++ready_;
    while (ready_ < kReplicas) std::this_thread::yield();
    may_fail_ = true;
    if (self == kReplicas - 1) return seat.returned();
    std::vector<watch::GroupMember> members;
    for (int i = 0; i < kReplicas; ++i) members.push_back(replica(i));
    const auto group = board(self).group(seat_worker(self), 77, members);
    seat.start(*group, self, call_of("all"));
    ++called_;
    while (called_ < kReplicas - 1) std::this_thread::yield();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    std::string text;
    while (text.empty() && std::chrono::steady_clock::now() < until) {
      if (const auto verdict = board(self).examine(seat, true)) text = verdict->text;
      std::this_thread::yield();
    }
    const std::lock_guard lock(mutex_);
    verdicts_.push_back(text);
  }

  [[nodiscard]] int seat_worker(int number) const { return replica(number).worker; }

  Layout layout_;
  std::deque<Event> events_;
  std::vector<std::shared_ptr<watch::Board>> boards_;
  std::vector<std::unique_ptr<watch::Board::Seat>> seats_;
  std::atomic<int> examined_{0};
  std::atomic<int> ready_{0};
  std::atomic<int> called_{0};
  std::atomic<bool> may_fail_{false};
  std::atomic<bool> over_{false};
  std::mutex mutex_;  // guards what follows
  std::vector<std::string> alarms_;
  std::vector<std::string> verdicts_;
};

}  // namespace

TEST_CASE("replicas in step are never said to be out of it", "[board]") {
  const auto layout = GENERATE(Layout::one_worker, Layout::worker_each, Layout::board_each);
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  InStep program(layout, seed);
  program.run();
  const std::vector<std::string> alarms = program.alarms();
  CHECK(alarms.size() == 0);
  if (!alarms.empty()) FAIL_CHECK(alarms.front());
  CHECK(program.examined() > kEvents);
  CHECK(program.verdicts() ==
        std::vector<std::string>(kReplicas - 1,
                                 "replica 4 has returned while replicas 0, 1, 2 and 3 called all"));
}

TEST_CASE("a settled verdict names a member that arrives while the board is read",
          "[board][slow]") {
  int wrong = 0;
  testing::Sample sample("members that are late");
  for (int i = 0; i < 3000; ++i) {
    if (!sample.next()) continue;
    watch::Board board(1);
    const std::array<watch::GroupMember, 3> members = {
        watch::GroupMember{.id = 1}, watch::GroupMember{.id = 2}, watch::GroupMember{.id = 3}};
    const auto first = board.take_seat(0, 1, 0, "0");
    const auto second = board.take_seat(0, 2, 0, "1");
    const auto third = board.take_seat(0, 3, 0, "2");
    const auto group = board.group(0, 5, members);
    first->start(*group, 0, call_of("all"));
    third->returned();
    std::thread late([&] { second->start(*group, 1, call_of("all")); });
    std::optional<watch::Board::Verdict> verdict;
    while (!verdict) verdict = board.examine(*first, /*settled_only=*/true);
    late.join();
    wrong += verdict->text == "replica 2 has returned while replicas 0 and 1 called all" ? 0 : 1;
  }
  CHECK(wrong == 0);
}
