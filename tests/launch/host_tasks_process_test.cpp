#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include "framework/base/core_set.h"
#include "framework/base/descriptor.h"
#include "framework/base/errors.h"
#include "framework/base/poll_set.h"
#include "framework/base/text.h"
#include "framework/launch/host_tasks.h"
#include "framework/launch/stop_signals.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "trainers/bench/hosts/child_program.h"

// Each task is a fork of the test.

using namespace lockstep;
using namespace lockstep::launcher;
using namespace lockstep::testing;
using namespace std::chrono_literals;

namespace {

const std::string kJob = str("test ", ::getpid());  // all forks have the same

engines::Whereabouts task_of_this_test(std::int64_t rank, std::int64_t tasks) {
  return {.engine = engines::Engine::slurm,
          .job = kJob,
          .step = "0",
          .local_rank = rank,
          .local_tasks = tasks,
          .all_tasks = tasks,
          .starter = "srun"};
}

std::unique_ptr<ChildProgram> forked(const std::function<int()>& body) {
  return std::make_unique<ChildProgram>(body);
}

std::unique_ptr<ChildProgram> standing_by(std::int64_t rank, std::int64_t tasks,
                                          const TaskFacts& facts = {}) {
  return forked([=] { return stand_by(task_of_this_test(rank, tasks), facts, 60s); });
}

// Starts a first task that says when all tasks are there, and ends with 143 after a signal.
std::unique_ptr<ChildProgram> first_until_stopped(std::int64_t tasks) {
  return forked([=] {
    const StopSignals stop;
    HostTasks others(task_of_this_test(0, tasks), {}, 60s);
    std::cout << "all are there" << std::endl;
    wait_for({stop.descriptor(), POLLIN, 0}, 60s);
    others.end(status_of_stop(stop.signal()));
    return status_of_stop(stop.signal());
  });
}

bool has_all(const ChildProgram& first) {
  return eventually([&] { return first.out() == "all are there\n"; });
}

}  // namespace

TEST_CASE("the first task of a host gets the cores of all, and the others end with its status") {
  const CoreSet all = CoreSet::of_thread();
  std::size_t lowest = 0;
  std::size_t highest = CoreSet::kMost - 1;
  while (!all.has(lowest)) ++lowest;
  while (!all.has(highest)) --highest;
  const TaskFacts facts{{"arguments", "a b"}};
  // The last task has a core of its own.
  std::vector<std::unique_ptr<ChildProgram>> tasks;
  for (const std::int64_t rank : {2, 1, 0}) {
    tasks.push_back(forked([=] {
      CoreSet own;
      own.add(rank == 2 ? highest : lowest);
      (void)own.take();
      if (rank != 0) return stand_by(task_of_this_test(rank, 3), facts, 60s);
      HostTasks others(task_of_this_test(0, 3), facts, 60s);
      std::cout << others.cores().take().text() << std::endl;
      others.end(7);
      return 7;
    }));
  }
  for (const auto& task : tasks) check_status(task->wait(), 7);
  CoreSet both;
  both.add(lowest);
  both.add(highest);
  CHECK(tasks.back()->out() == both.text() + "\n");
}

TEST_CASE("tasks that were started for different things all end with an error that says so") {
  const auto second = standing_by(1, 3, {{"arguments", "--output a"}});
  const auto third = standing_by(2, 3, {{"arguments", "--output b"}});
  CHECK(message_of<ValueError>([] {
          const HostTasks others(task_of_this_test(0, 3), {{"arguments", "--output a"}}, 60s);
        }) ==
        "task 2 of this host has other arguments (--output b) than task 0 (--output a), but tasks "
        "of a host run one program together: --engine none makes each a run of its own");
  for (const auto& task : {&second, &third}) check_status((*task)->wait(), 2);
}

TEST_CASE("two tasks of one rank are not one job's") {
  const auto one = standing_by(1, 3);
  const auto other = standing_by(1, 3);
  CHECK(message_of<ValueError>([] { const HostTasks others(task_of_this_test(0, 3), {}, 60s); }) ==
        "two tasks of this job have local rank 1 on this host");
}

TEST_CASE("a task beyond those that the first one knows is told") {
  const auto sixth = standing_by(5, 6);
  CHECK(message_of<ValueError>([] { const HostTasks others(task_of_this_test(0, 3), {}, 60s); }) ==
        "a task of this host has local rank 5, and there are 3");
}

TEST_CASE("a process that has the tasks' place is named") {
  const auto other = forked([] {
    const HostTasks waits(task_of_this_test(0, 2), {}, 60s);
    return 0;
  });
  std::string told;
  CHECK(eventually([&] {
    try {
      const HostTasks others(task_of_this_test(0, 2), {}, 20ms);
    } catch (const Timeout&) {  // the other task has not begun
    } catch (const CommError& error) {
      told = error.what();
    }
    return !told.empty();
  }));
  CHECK(told == str("the tasks of this host can't meet: process ", other->pid(),
                    " has their place; --engine none makes each a run of its own"));
  CHECK(::kill(other->pid(), SIGKILL) == 0);
}

namespace {

// A runtime folder of this user's, such as login sessions have: the tasks' folder lies in it.
class RuntimeFolder {
 public:
  explicit RuntimeFolder(std::filesystem::path path) : path_(std::move(path)) {
    std::filesystem::create_directories(path_);
    ::setenv("XDG_RUNTIME_DIR", path_.c_str(), 1);
  }
  ~RuntimeFolder() { ::unsetenv("XDG_RUNTIME_DIR"); }

  [[nodiscard]] std::filesystem::path tasks() const {
    return path_ / str("lockstep-", ::geteuid());
  }

 private:
  std::filesystem::path path_;
};

}  // namespace

TEST_CASE("tasks meet in a folder of their user's, of which nothing stays") {
  const TemporaryFolder folder;
  for (const std::string& name :
       {std::string("run"), std::string(200, 'x')}) {  // longer than a socket's name
    const RuntimeFolder runtime(folder.path(name));
    const auto killed = forked([] {
      const HostTasks waits(task_of_this_test(0, 2), {}, 60s);
      return 0;
    });
    CHECK(eventually([&] {
      return std::filesystem::exists(runtime.tasks()) &&
             !std::filesystem::is_empty(runtime.tasks());
    }));
    REQUIRE(::kill(killed->pid(), SIGKILL) == 0);
    (void)killed->wait();
    const auto second = standing_by(1, 2);
    const auto first = forked([] {
      HostTasks others(task_of_this_test(0, 2), {}, 60s);
      others.end(7);
      return 0;
    });
    check_status(first->wait(), 0);
    check_status(second->wait(), 7);
    CHECK(!std::filesystem::exists(runtime.tasks()));
  }
}

TEST_CASE("a folder that others may change is no place for tasks, and all of them say so") {
  const TemporaryFolder folder;
  const RuntimeFolder runtime(folder.path("run"));
  std::filesystem::create_directory(runtime.tasks());
  std::filesystem::permissions(runtime.tasks(), std::filesystem::perms::all);
  const std::string expected =
      str("the tasks of this host can't meet: ", runtime.tasks().string(), " is no folder of user ",
          ::geteuid(), " alone (mode 0700): set XDG_RUNTIME_DIR to one");
  CHECK(message_of<CommError>([] { const HostTasks none(task_of_this_test(0, 2), {}, 60s); }) ==
        expected);
  CHECK(message_of<CommError>([] { (void)stand_by(task_of_this_test(1, 2), {}, 60s); }) ==
        expected);
}

TEST_CASE("a lock that others hold keeps tasks no longer than they wait for each other") {
  const TemporaryFolder folder;
  const RuntimeFolder runtime(folder.path("run"));
  std::filesystem::create_directory(runtime.tasks());
  std::filesystem::permissions(runtime.tasks(), std::filesystem::perms::owner_all);
  const Descriptor held(::open(runtime.tasks().c_str(), O_RDONLY | O_CLOEXEC));
  REQUIRE(::flock(held.get(), LOCK_EX) == 0);
  CHECK_THAT(
      message_of<CommError>([] { const HostTasks none(task_of_this_test(0, 2), {}, 300ms); }),
      ContainsSubstring("another process has their place"));
}

TEST_CASE("the others stand by through a signal that is the first task's, too") {
  const auto second = standing_by(1, 2);
  const auto first = first_until_stopped(2);
  REQUIRE(has_all(*first));
  REQUIRE(::kill(second->pid(), SIGTERM) == 0);
  REQUIRE(::kill(first->pid(), SIGTERM) == 0);
  const Ended end = second->wait();
  check_status(end, 143);
  CHECK(!end.by_signal);
  check_status(first->wait(), 143);
}

TEST_CASE("the others end at once if the first task is gone") {
  const auto second = standing_by(1, 3);
  const auto stopped = forked([] {
    try {
      return stand_by(task_of_this_test(2, 3), {}, 60s);
    } catch (const Stopped& stop) {
      return stop.signal();
    }
  });
  const auto first = first_until_stopped(3);
  REQUIRE(has_all(*first));
  REQUIRE(::kill(stopped->pid(), SIGTERM) == 0);
  REQUIRE(::kill(first->pid(), SIGKILL) == 0);
  CHECK_THAT(second->wait().err,
             ContainsSubstring(str("task 0 of this host (pid ", first->pid(),
                                   "), which ran the program for all its tasks, is gone without a "
                                   "status")));
  check_status(stopped->wait(), SIGTERM);
}

TEST_CASE("a limit of open files that is too low for the tasks is told at once") {
  const TemporaryFolder folder;
  const RuntimeFolder runtime(
      folder.path());  // without sockets of others, which take descriptors to try
  const auto first = forked([] {
    rlimit files{};
    (void)::getrlimit(RLIMIT_NOFILE, &files);
    {
      // Allows two more files than are open: the folder and the socket at which tasks meet.
      const Descriptor one(::dup(STDIN_FILENO));
      const Descriptor two(::dup(STDIN_FILENO));
      files.rlim_cur = static_cast<rlim_t>(two.get()) + 1;
    }
    (void)::setrlimit(RLIMIT_NOFILE, &files);
    std::cout << message_of<CommError>([] {
      const HostTasks others(task_of_this_test(0, 2), {}, 60s);
    }) << std::flush;
    return 0;
  });
  // The first task waits well as long as no other has come.
  REQUIRE(
      eventually([&] { return first->err().find("waits for task 1 of 2") != std::string::npos; }));
  const auto second = standing_by(1, 2);
  CHECK_THAT(first->wait().out,
             ContainsSubstring("the tasks of this host can't meet: Too many open files"));
  CHECK_THAT(second->wait().err, ContainsSubstring("is gone without a status"));
}

TEST_CASE("who does not come is named") {
  const auto timeout = 50ms;
  CHECK(message_of<Timeout>([&] { const HostTasks none(task_of_this_test(0, 3), {}, timeout); }) ==
        "tasks 1, 2 of 3, which srun has started on this host, did not come within 50 ms; --engine "
        "none makes each a run of its own");
  CHECK(message_of<Timeout>([&] { (void)stand_by(task_of_this_test(1, 3), {}, timeout); }) ==
        "task 0 of 3, which srun has started on this host, did not come within 50 ms; --engine "
        "none makes each a run of its own");
}
