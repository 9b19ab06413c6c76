#include "framework/comm/turn.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("of the threads of a turn one runs at a time, and breaks let the others run") {
  constexpr int kThreads = 8;
  constexpr int kRounds = 50;
  Turn turn;
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  std::mutex mutex;
  std::condition_variable arrived_changed;
  int arrived = 0;
  const auto run = [&] {
    const TurnScope my_turn(&turn);
    for (int round = 1; round <= kRounds; ++round) {
      const int now = ++running;
      if (now > most) most = now;
      --running;
      // A barrier: it completes only if whoever waits in it lets the others run.
      const TurnBreak others_may_run;
      std::unique_lock lock(mutex);
      if (++arrived == kThreads * round) arrived_changed.notify_all();
      arrived_changed.wait(lock, [&] { return arrived >= kThreads * round; });
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(run);
  for (std::thread& thread : threads) thread.join();
  CHECK(most == 1);
  CHECK(arrived == kThreads * kRounds);
}

TEST_CASE("who does not hand over its turn in time is not waited for") {
  Turn turn{std::chrono::milliseconds(200)};
  turn.take();
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  const auto run = [&] {
    const TurnScope mine(&turn);
    const int now = ++running;
    if (now > most) most = now;
    --running;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(run);
  for (std::thread& thread : threads) thread.join();
  CHECK(most == 1);  // of those who came later
  std::thread other([&] { turn.take(); });
  other.join();
  turn.give();  // it was the other's by then, who keeps it
  turn.take();
  turn.give();
}

TEST_CASE("without a turn scopes and breaks do nothing, and an inner scope can leave a turn") {
  CHECK(current_turn() == nullptr);
  const TurnBreak nothing;
  const TurnScope none(nullptr);
  Turn turn;
  {
    const TurnScope mine(&turn);
    CHECK(current_turn() == &turn);
  }
  CHECK(current_turn() == nullptr);
  turn.take();  // it was given back
  turn.give();
}

TEST_CASE("threads that are let go on together have the turn in the order of their line") {
  constexpr int kThreads = 8;
  Turn turn;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::thread::id> ids(kThreads);
  int arrived = 0;
  bool go_on = false;
  std::vector<int> order;  // guarded by the turn
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const TurnScope my_turn(&turn);
      {
        const TurnBreak others_may_run;
        std::unique_lock lock(mutex);
        ids[static_cast<std::size_t>(i)] = std::this_thread::get_id();
        ++arrived;
        changed.notify_all();
        changed.wait(lock, [&] { return go_on; });
      }
      order.push_back(i);
    });
  }
  {
    const TurnScope my_turn(&turn);
    {
      const TurnBreak others_may_run;
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return arrived == kThreads; });
    }
    const std::lock_guard lock(mutex);
    go_on = true;
    changed.notify_all();
    for (const std::thread::id id : ids) turn.line_up(id);
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
}
