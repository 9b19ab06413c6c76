#include "framework/base/memory.h"

#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "tests/catch.h"

using namespace lockstep;

namespace {

class EnvironmentVariable {
 public:
  EnvironmentVariable(std::string name, const char* value) : name_(std::move(name)) {
    if (const char* const former = std::getenv(name_.c_str())) former_ = former;
    ::setenv(name_.c_str(), value, 1);
  }
  ~EnvironmentVariable() {
    former_ ? ::setenv(name_.c_str(), former_->c_str(), 1) : ::unsetenv(name_.c_str());
  }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

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
