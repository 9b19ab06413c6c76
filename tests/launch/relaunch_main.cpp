// A program that launches while it has a second thread, so that replicas are not forked but started
// anew. Usage: relaunch run|fail|lose|wait|stop WORD

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/launch/launch.h"

namespace {

using lockstep::LaunchMode;

void expect(bool holds, const char* message) {
  if (!holds) throw std::runtime_error(message);
}

// Checks that programs that a replica starts don't inherit its connections to the launcher.
void expect_nothing_to_inherit() {
  expect(std::getenv("LOCKSTEP_WORKER") == nullptr,
         "the environment still has the replica's place");
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::stoi(entry.path().filename());
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) continue;
    if (address.ss_family != AF_UNIX) continue;
    expect((::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0, "a socket that programs inherit");
  }
}

void in_threads() {
  try {
    (void)lockstep::launch([] {});
  } catch (const lockstep::ValueError&) {
    return;
  }
  throw std::runtime_error("launch inside a replica was not refused");
}

void first(const std::string& word) {
  expect_nothing_to_inherit();
  std::cout << "first " << lockstep::axis_index("data") << " of " << lockstep::axis_size("data")
            << " " << word << "\n";
}

void on_two_workers() {
  const auto all =
      lockstep::all_gather(at::full({}, static_cast<std::int64_t>(::getpid())), "data");
  expect(all[0].equal(all[1]) && !all[0].equal(all[2]), "two replicas on the first worker");
}

void second(const std::string& mode) {
  if (mode == "fail" && lockstep::axis_index("rows") == 1)
    throw lockstep::DataError("row 3 is cut");
  if (mode == "lose" && lockstep::launch_restarts() == 0) ::_exit(7);
  std::cout << (mode == "wait" ? ::getpid() : 0) << " second " << lockstep::psum(1, "rows")
            << std::endl;
  while (mode == "wait") ::pause();
  while (mode == "stop" && lockstep::psum(lockstep::stop_requested() ? 1 : 0, "rows") == 0) {
  }
  if (mode == "stop") std::cout << (lockstep::stop_requested() ? "asked" : "not asked") << "\n";
}

int run(const std::string& mode, const std::string& word) {
  int status = lockstep::launch(in_threads, {.replicas = 2, .mode = LaunchMode::threads});
  if (status == 0)
    status =
        lockstep::launch([&] { first(word); }, {.replicas = 2, .prints = lockstep::Prints::all});
  if (status == 0) status = lockstep::launch(on_two_workers, {.replicas = 3, .workers = 2});
  if (status != 0) return status;
  return lockstep::launch([&] { second(mode); }, {.replicas = 3,
                                                  .axis_name = "rows",
                                                  .on_stop = mode == "stop" ? lockstep::OnStop::ask
                                                                            : lockstep::OnStop::end,
                                                  .prints = lockstep::Prints::all,
                                                  .max_restarts = mode == "lose" ? 1 : 0,
                                                  .restart_delay = std::chrono::milliseconds(1)});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;
  std::thread other([&] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return stop; });
  });
  const int status = run(argv[1], argv[2]);
  {
    const std::lock_guard lock(mutex);
    stop = true;
  }
  changed.notify_all();
  other.join();
  return status;
}
