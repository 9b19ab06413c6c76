#include "framework/comm/run_lock.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("of the threads of a run lock one runs at a time, and releases let the others run") {
  constexpr int kThreads = 8;
  constexpr int kRounds = 50;
  comm::RunLock run_lock;
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  std::mutex mutex;
  std::condition_variable arrived_changed;
  int arrived = 0;
  const auto run = [&] {
    const comm::RunLockScope scope(&run_lock);
    for (int round = 1; round <= kRounds; ++round) {
      const int now = ++running;
      if (now > most) most = now;
      --running;
      // This barrier completes only if threads that wait in it let the others run.
      const comm::RunLockRelease others_may_run;
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

TEST_CASE("a thread that does not release the lock in time is not waited for") {
  comm::RunLock run_lock{std::chrono::milliseconds(200)};
  run_lock.take();
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  const auto run = [&] {
    const comm::RunLockScope mine(&run_lock);
    const int now = ++running;
    if (now > most) most = now;
    --running;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(run);
  for (std::thread& thread : threads) thread.join();
  CHECK(most == 1);  // of the threads that came later
  std::thread other([&] { run_lock.take(); });
  other.join();
  run_lock.give();  // the other thread had it by then, and keeps it
  run_lock.take();
  run_lock.give();
}

TEST_CASE("a thread that has waited for its turn long enough stands in nobody's way") {
  comm::RunLock run_lock{std::chrono::milliseconds(200)};
  run_lock.take();
  bool has_turn = true;
  std::thread other([&] {
    run_lock.line_up(std::this_thread::get_id());
    has_turn = run_lock.wait_for_turn(std::chrono::milliseconds(0));
  });
  other.join();
  CHECK(!has_turn);
  run_lock.give();  // to nobody: the other waits no more
  run_lock.line_up(std::this_thread::get_id());
  CHECK(run_lock.wait_for_turn(std::chrono::milliseconds(0)));
  run_lock.give();
}

TEST_CASE("without a lock scopes and releases do nothing") {
  CHECK(comm::current_run_lock() == nullptr);
  const comm::RunLockRelease nothing;
  const comm::RunLockScope none(nullptr);
  comm::RunLock run_lock;
  {
    const comm::RunLockScope mine(&run_lock);
    CHECK(comm::current_run_lock() == &run_lock);
  }
  CHECK(comm::current_run_lock() == nullptr);
  run_lock.take();  // it was given back
  run_lock.give();
}

TEST_CASE("threads that are let go on together have the lock in the order of their line") {
  constexpr int kThreads = 8;
  comm::RunLock run_lock;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::thread::id> ids(kThreads);
  int arrived = 0;
  bool go_on = false;
  std::vector<int> order;  // guarded by the lock
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const comm::RunLockScope scope(&run_lock);
      {
        const comm::RunLockRelease others_may_run;
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
    const comm::RunLockScope scope(&run_lock);
    {
      const comm::RunLockRelease others_may_run;
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return arrived == kThreads; });
    }
    const std::lock_guard lock(mutex);
    go_on = true;
    changed.notify_all();
    for (const std::thread::id id : ids) run_lock.line_up(id);
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
}
