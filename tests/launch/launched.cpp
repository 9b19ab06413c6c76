#include "tests/launch/launched.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <sys/mman.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "tests/support/ended.h"
#include "tests/support/free_port.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace lockstep::testing {

SharedNumbers::SharedNumbers(std::size_t count) : count_(count) {
  void* const memory = ::mmap(nullptr, count * sizeof *numbers_, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
  numbers_ = new (memory) std::atomic<std::int64_t>[count]();
}

SharedNumbers::~SharedNumbers() {
  ::munmap(numbers_, count_ * sizeof *numbers_);
}

std::atomic<std::int64_t>& SharedNumbers::operator[](std::size_t index) const {
  if (index >= count_) throw std::out_of_range("SharedNumbers");
  return numbers_[index];
}

std::size_t SharedNumbers::set() const {
  std::size_t set = 0;
  for (std::size_t i = 0; i < count_; ++i) set += numbers_[i] != 0 ? 1 : 0;
  return set;
}

std::vector<pid_t> SharedNumbers::pids() const {
  std::vector<pid_t> pids;
  for (std::size_t i = 0; i < count_; ++i) pids.push_back(static_cast<pid_t>(numbers_[i]));
  return pids;
}

std::function<int()> launching(std::function<void()> replica, LaunchOptions options) {
  return [replica = std::move(replica), options = std::move(options)] {
    try {
      return launch(replica, options);
    } catch (const Error& error) {
      log_error(str(error.type(), ": ", error.what()));
      return exit_status(error);
    }
  };
}

Ended launched(const std::function<void()>& replica, const LaunchOptions& options) {
  return run_forked(launching(replica, options));
}

std::string text_of(const LaunchOptions& options) {
  return str(options.replicas, " replicas, ", options.workers, " workers, ", name_of(options.mode),
             options.backend == Backend::gloo ? ", gloo" : "");
}

void check_launched(const std::function<void()>& replica, const LaunchOptions& options,
                    std::source_location where) {
  INFO(text_of(options));
  check_status(launched(replica, options), 0, where);
}

std::vector<Ended> launched_on_hosts(
    const std::function<void()>& replica, const LaunchOptions& options, std::int64_t hosts,
    const std::function<void(const std::vector<std::unique_ptr<ChildProgram>>&)>& started) {
  const TemporaryFolder folder;
  LaunchOptions own = options;
  own.hosts.count = hosts;
  own.hosts.rendezvous = str("127.0.0.1:", free_port());
  own.hosts.secret_file = folder.path() / "secret";
  std::ofstream(own.hosts.secret_file) << std::string(64, '7') << "\n";
  std::filesystem::permissions(own.hosts.secret_file, std::filesystem::perms::owner_read);
  std::vector<std::unique_ptr<ChildProgram>> launchers;
  for (std::int64_t start = 0; start < hosts; ++start) {
    own.hosts.rank = (options.hosts.rank + start) % hosts;
    launchers.push_back(std::make_unique<ChildProgram>(launching(replica, own)));
    if (started) started(launchers);
  }
  std::vector<Ended> ended;
  for (const auto& launcher : launchers) ended.push_back(launcher->wait());
  return ended;
}

std::string refusal_of(const LaunchOptions& options) {
  return message_of<ValueError>([&] { (void)launch([] {}, options); });
}

std::size_t own_index() {
  return static_cast<std::size_t>(axis_index("data"));
}

std::string last_words(const Ended& ended) {
  const std::size_t begin = ended.err.rfind("lockstep: error: ");
  return begin == std::string::npos ? "nothing: " + ended.err : ended.err.substr(begin);
}

bool all_ended(const SharedNumbers& pids) {
  const auto all = pids.pids();
  return std::all_of(all.begin(), all.end(), [](pid_t pid) { return ended(pid); });
}

std::int64_t worker_of(std::int64_t replica, std::int64_t replicas, std::int64_t workers) {
  std::int64_t worker = 0;
  while (shard(replicas, workers, worker + 1).offset <= replica && worker + 1 < workers) ++worker;
  return worker;
}

void meet() {
  (void)psum(at::ones({3}), "data");
}

void block() {
  for (;;) ::pause();
}

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace lockstep::testing
