#include "framework/comm/shared/host_memory.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/comm/shared/flag.h"
#include "tests/catch.h"
#include "tests/comm/replicas.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/ended.h"
#include "tests/support/message_of.h"
#include "tests/support/programs.h"

using namespace lockstep;
using std::chrono::milliseconds;
using testing::make_host_memory;

TEST_CASE("a flag is waited for until it is raised, also around its end", "[shared]") {
  for (const std::uint32_t start : {0U, 0xfffffff0U}) {
    comm::Flag flag{};
    flag.raise(start);
    constexpr std::uint32_t kRounds = 1000;
    constexpr comm::Flag::Patience patience[] = {
        {}, {.spins = 100}, {10, std::chrono::microseconds(20)}};
    std::atomic<bool> in_time{true};
    std::thread waiter([&] {
      for (std::uint32_t i = 1; i <= kRounds; ++i) {
        if (!flag.wait(start + i, patience[i % 3], std::chrono::seconds(10))) in_time = false;
      }
    });
    for (std::uint32_t i = 1; i <= kRounds; ++i) flag.raise(start + i);
    waiter.join();
    CHECK(in_time);
    CHECK(flag.reached(start + kRounds));
    CHECK(!flag.reached(start + kRounds + 1));
    CHECK(!flag.wait(start + kRounds + 1, {10, milliseconds(1)}, milliseconds(1)));
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // fail_allocation()
TEST_CASE("a group's region can be held after memory ran out for it", "[shared]") {
  const auto memory = make_host_memory(3);
  int failed = 0;
  for (std::shared_ptr<comm::HostMemory::Region> region; region == nullptr;) {
    (void)testing::fail_allocation(failed + 1);
    try {
      region = memory->hold(5, 3);
    } catch (const std::bad_alloc&) {
      ++failed;
    }
    (void)testing::fail_allocation(0);
    CHECK(memory->hold(6, 3) != region);
  }
  CHECK(failed > 1);
}
#endif

TEST_CASE("who holds a group's region has what the others have", "[shared]") {
  const auto memory = make_host_memory(3);
  const auto region = memory->hold(5, 3);
  CHECK(memory->hold(5, 3) == region);
  const auto other = memory->hold(6, 2);
  region->chunk(2, 1)[0] = std::byte{7};
  region->line(0).round.raise(9);
  CHECK(other->line(0).round.value() == 0);
  CHECK(other->chunk(1, 1)[0] == std::byte{0});
  const testing::Ended end = testing::run_forked([&] {
    // The child has the parent's mapping, and finds the region by its key, too.
    const auto same = memory->hold(5, 3);
    const bool right = same->chunk(2, 1)[0] == std::byte{7} && same->line(0).round.reached(9);
    same->line(1).round.raise(4);
    return right ? 0 : 1;
  });
  CHECK(end.status == 0);
  CHECK(region->line(1).round.value() == 4);
}

TEST_CASE("parts of a region do not overlap", "[shared]") {
  const auto region = make_host_memory(4)->hold(1, 4);
  std::set<const std::byte*> ends;
  std::size_t total = 0;
  for (std::size_t member = 0; member < 4; ++member) {
    for (std::size_t i = 0; i < 2; ++i) ends.insert(region->small(member, i).data());
    for (std::size_t i = 0; i < comm::HostMemory::kChunks; ++i) {
      ends.insert(region->chunk(member, i).data());
      total += region->chunk(member, i).size();
    }
    ends.insert(reinterpret_cast<const std::byte*>(&region->line(member)));
  }
  CHECK(ends.size() == 4 * (2 + comm::HostMemory::kChunks + 1));
  CHECK(static_cast<std::size_t>(*ends.rbegin() - *ends.begin()) + comm::HostMemory::kChunkBytes >=
        total + 4 * 2 * comm::HostMemory::kSmallBytes);
}

TEST_CASE("a region that all have let go of is cleared for the next group", "[shared]") {
  const auto memory = make_host_memory(2);
  memory->hold(5, 2)->line(1).round.raise(3);
  const auto next = memory->hold(8, 2);
  CHECK(next->line(1).round.value() == 0);
  std::vector<std::shared_ptr<comm::HostMemory::Region>> held;
  for (int i = 1; i < comm::HostMemory::kGroups; ++i) {
    held.push_back(memory->hold(1000 + static_cast<std::uint64_t>(i), 2));
  }
  CHECK(testing::message_of<CommError>([&] { (void)memory->hold(999, 2); }) ==
        "no room for another group: 4096 groups of this host's replicas are in use");
  held.pop_back();
  CHECK_NOTHROW(memory->hold(999, 2));
}

TEST_CASE("an extent takes the memory that is reserved and gives it back", "[shared]") {
  const int file = ::memfd_create("extents", MFD_CLOEXEC);
  REQUIRE(::ftruncate(file, static_cast<off_t>(comm::SharedExtents::kBytes)) == 0);
  const auto used = [&] {
    struct stat status {};
    ::fstat(file, &status);
    return static_cast<std::size_t>(status.st_blocks) * 512;
  };
  const auto extents = std::make_shared<comm::SharedExtents>(file, 0);
  const auto others =
      std::make_shared<comm::SharedExtents>(file, 0);  // as another process has them
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  auto mine = extents->allocate(kBytes);
  auto theirs = others->attach(mine->offset(), kBytes);
  CHECK(extents->attach(mine->offset(), kBytes) == mine);
  CHECK(used() < kBytes / 8);
  mine->reserve(mine->data().first(kBytes / 2));
  CHECK(used() >= kBytes / 2);
  CHECK(used() < kBytes);
  theirs->data()[kBytes / 4] = std::byte{5};
  CHECK(mine->data()[kBytes / 4] == std::byte{5});

  const auto second = extents->allocate(1);
  CHECK(second->offset() >= mine->offset() + kBytes);
  const auto place = extents->find(mine->data().subspan(100, 50));
  CHECK(place == comm::SharedAddress{mine->offset(), 100});
  CHECK(others->data_of(place.extent) == theirs->data().data());
  CHECK(others->find(mine->data()) == comm::SharedAddress{});
  CHECK(extents->find({mine->data().data() + kBytes - 1, 2}) == comm::SharedAddress{});

  mine.reset();
  CHECK(used() >= kBytes / 2);
  theirs.reset();
  CHECK(used() < kBytes / 8);
  ::close(file);
}

TEST_CASE("a limit on the size of files is an error that says so", "[shared]") {
  const testing::Ended end = testing::run_forked([] {
    const rlimit limit{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::cout << testing::message_of<ValueError>([] { (void)comm::HostMemory::make_memory(2); });
    return 0;
  });
  CHECK(end.status == 0);
  CHECK_THAT(end.out, ContainsSubstring("files may have no more than 1.0 MiB here (ulimit -f)"));
}

TEST_CASE("under a larger limit on the size of files the memory has fewer groups", "[shared]") {
  const testing::Ended end = testing::run_forked([] {
    const rlimit limit{256 << 20, 256 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const int descriptor = comm::HostMemory::make_memory(2);
    const auto memory = std::make_shared<comm::HostMemory>(2, descriptor);
    const auto others = std::make_shared<comm::HostMemory>(2, descriptor);
    memory->hold(7, 2)->small(1, 0)[0] = std::byte{9};
    const auto extent = memory->extents()->allocate(8 << 20);
    extent->reserve(extent->data());
    extent->data()[5] = std::byte{3};
    const auto same = others->extents()->attach(extent->offset(), 8 << 20);
    if (same->data()[5] != std::byte{3}) return 1;
    std::vector<std::shared_ptr<comm::HostMemory::Region>> held;
    std::cout << testing::message_of<CommError>([&] {
      for (std::uint64_t key = 100;; ++key) held.push_back(memory->hold(key, 2));
    });
    std::cout << testing::message_of<CommError>(
        [&] { (void)memory->extents()->allocate(200 << 20); });
    (void)memory->extents()->allocate(8 << 20);  // the refused one has taken no addresses
    return 0;
  });
  testing::check_status(end, 0);
  CHECK_THAT(end.out, ContainsSubstring("no room for another group: ") &&
                          ContainsSubstring("the addresses for them are used up; files may have no "
                                            "more than 256.0 MiB (ulimit -f)"));
}

TEST_CASE("the memory of a host has no name, a fixed size and ends on exec", "[shared]") {
  const int descriptor = comm::HostMemory::make_memory(2);
  CHECK((::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(::ftruncate(descriptor, 1) != 0);
  std::array<char, 200> path{};
  const auto link = str("/proc/self/fd/", descriptor);
  CHECK(::readlink(link.c_str(), path.data(), path.size() - 1) > 0);
  CHECK_THAT(std::string(path.data()),
             ContainsSubstring("/memfd:") && ContainsSubstring("(deleted)"));
  ::close(descriptor);
  CHECK_THAT(testing::message_of<CommError>([] { comm::HostMemory(2, -1); }),
             ContainsSubstring("descriptor -1 can't be used"));
}
