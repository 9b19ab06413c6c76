#include "framework/base/memory.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <sys/resource.h>

#include "framework/base/limits.h"
#include "framework/base/non_copyable.h"
#include "tests/base/control_groups.h"
#include "tests/catch.h"
#include "tests/support/programs.h"

using namespace lockstep;
using lockstep::testing::ControlGroups;

namespace {

class EnvironmentVariable : private NonCopyable {
 public:
  EnvironmentVariable(std::string name, const char* value) : name_(std::move(name)) {
    if (const char* const former = std::getenv(name_.c_str())) former_ = former;
    ::setenv(name_.c_str(), value, 1);
  }
  ~EnvironmentVariable() {
    former_ ? ::setenv(name_.c_str(), former_->c_str(), 1) : ::unsetenv(name_.c_str());
  }

 private:
  std::string name_;
  std::optional<std::string> former_;
};

}  // namespace

TEST_CASE("what is available is some of the machine's memory") {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t all = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * page;
  CHECK(available_memory() > std::size_t{1} << 20);
  CHECK(available_memory() < all);
}

TEST_CASE("what is available is no more than addresses are left") {
  constexpr std::size_t kLeft = 64 << 20;
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  rlimit limited = before;
  limited.rlim_cur = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + kLeft;
  REQUIRE(::setrlimit(RLIMIT_AS, &limited) == 0);
  const std::size_t available = available_memory();
  REQUIRE(::setrlimit(RLIMIT_AS, &before) == 0);
  CHECK(available <= kLeft);
  CHECK(available > kLeft / 2);
}

TEST_CASE("malloc settings of the user's own are noticed") {
  const auto with = [](const char* name, const char* value) {
    const EnvironmentVariable variable(name, value);
    return has_own_malloc_settings();
  };
  CHECK(with("MALLOC_TRIM_THRESHOLD_", "131072"));
  CHECK(with("MALLOC_MMAP_THRESHOLD_", "131072"));
  CHECK(with("GLIBC_TUNABLES", "glibc.cpu.x86_ibt=off:glibc.malloc.trim_threshold=131072"));
  CHECK_FALSE(with("GLIBC_TUNABLES", "glibc.cpu.x86_ibt=off"));
}

// The sanitizers bring a malloc of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {

constexpr std::size_t kBlock = std::size_t{24} << 20;
constexpr std::size_t kBlocks = 3;

// The page faults of taking, filling and giving back some large blocks, as a step does.
long faults_of_a_step() {
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  {
    std::vector<std::vector<char>> blocks;
    for (std::size_t i = 0; i < kBlocks; ++i) blocks.emplace_back(kBlock, 'x');
  }
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  return after.ru_minflt - before.ru_minflt;
}

}  // namespace

TEST_CASE("memory that was freed is there without page faults, until it is released") {
  REQUIRE_FALSE(has_own_malloc_settings());
  keep_freed_memory();
  CHECK(faults_of_a_step() >= 0);
  CHECK(faults_of_a_step() < 100);
  const std::size_t kept = resident_memory();
  release_freed_memory();
  CHECK(resident_memory() + kBlocks * kBlock < kept + kBlock);
  const auto pages = static_cast<long>(kBlocks * kBlock) / ::sysconf(_SC_PAGESIZE);
  CHECK(faults_of_a_step() > pages / 2);
}
#endif

namespace {

constexpr std::size_t kNoLimit = std::numeric_limits<std::int64_t>::max();

std::size_t left_in(const ControlGroups& groups) {
  return left_in_control_groups(groups.root());
}

}  // namespace

TEST_CASE("control groups of version 2 limit the memory that is left") {
  const ControlGroups groups("0::/job/step\n");
  CHECK(left_in(groups) == kNoLimit);
  groups.write("sys/fs/cgroup/job/step/memory.max", "max\n");
  groups.write("sys/fs/cgroup/job/memory.max", "5000\n");
  groups.write("sys/fs/cgroup/job/memory.current", "3000\n");
  CHECK(left_in(groups) == 2000);
  groups.write("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 300\nactive_file 200\n");
  CHECK(left_in(groups) == 2500);
}

TEST_CASE("control groups of version 1 limit the memory that is left") {
  const ControlGroups groups("12:cpu,cpuacct:/elsewhere\n4:memory:/job/step\n0::/\n");
  const std::string memory = "sys/fs/cgroup/memory/";
  groups.write(memory + "job/step/memory.limit_in_bytes", "9223372036854771712\n");
  groups.write(memory + "job/step/memory.usage_in_bytes", "3000\n");
  groups.write(memory + "job/memory.limit_in_bytes", "5000\n");
  groups.write(memory + "job/memory.usage_in_bytes", "4000\n");
  CHECK(left_in(groups) == 1000);
  groups.write(memory + "job/memory.stat",
               "inactive_file 1\ntotal_inactive_file 300\ntotal_active_file 200\n");
  CHECK(left_in(groups) == 1500);
  // More is taken than there may be: it is being reclaimed.
  groups.write(memory + "job/memory.usage_in_bytes", "8000\n");
  CHECK(left_in(groups) == 0);
}

TEST_CASE("a container's own control group counts, where its path is the host's") {
  const ControlGroups groups("4:memory:/docker/0123abcd\n");
  groups.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n");
  groups.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
  CHECK(left_in(groups) == 4000);
}

TEST_CASE("a limit of private memory (ulimit -d) leaves what processes share") {
  const testing::Ended end = testing::run_forked([] {
    rlimit limit{RLIM_INFINITY - 1, RLIM_INFINITY - 1};
    ::setrlimit(RLIMIT_DATA, &limit);
    constexpr std::size_t kLeft = std::size_t{64} << 20;
    limit.rlim_cur = memory_limits().front().used + kLeft;
    ::setrlimit(RLIMIT_DATA, &limit);
    const bool is_right = available_memory() <= kLeft && available_memory() > kLeft / 2 &&
                          available_shared_memory() > kLeft && memory_of_host() > kLeft &&
                          lack_of_memory(2 * kLeft).find("(ulimit -d)") != std::string::npos;
    return is_right ? 0 : 1;
  });
  CHECK(end.status == 0);
}

TEST_CASE("memory that can't be had is told with both numbers") {
  CHECK(lack_of_memory(0).empty());
  CHECK(lack_of_memory(std::size_t{16} << 20).empty());
  const std::string lack = lack_of_memory(std::size_t{1} << 60);
  CHECK_THAT(lack, Catch::Matchers::StartsWith("1.0 EiB, and ") &&
                       Catch::Matchers::EndsWith("iB of memory are left"));
  CHECK_FALSE(lack_of_memory(std::numeric_limits<std::size_t>::max()).empty());
}

TEST_CASE("what is said of memory has numbers") {
  CHECK_THAT(memory_numbers(), ContainsSubstring("this process has used up to "));
  CHECK_THAT(memory_numbers(), ContainsSubstring("iB are left to it"));
  CHECK(text_of_bytes(0) == "0 B");
  CHECK(text_of_bytes(1536) == "1.5 KiB");
  CHECK(text_of_bytes(std::int64_t{1} << 62) == "4.0 EiB");
}
