#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/comm/communicator.h"
#include "tests/catch.h"
#include "tests/comm/replicas.h"
#include "tests/comm/symmetric_checks.h"
#include "tests/comm/words.h"
#include "tests/support/settings.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

void check_all_sizes(comm::Communicator& group) {
  for (const std::size_t count : {0, 1, 17, 4096, 4099, 70001}) check_symmetric(group, count);
}

}  // namespace

TEST_CASE("verbs on symmetric buffers agree with one replica's own computation", "[symmetric]") {
  const Backend backend = GENERATE(Backend::gloo, Backend::shared, Backend::hosts);
  INFO(name_of(backend));
  Sample sample(str("symmetric buffers, ", name_of(backend)));
  for (const int replicas : {1, 2, 3, 4, 5, 8}) {
    INFO(replicas << " replicas");
    if (sample.next()) CHECK_NOTHROW(in_threads(backend, replicas, check_all_sizes));
    if (sample.next()) CHECK_NOTHROW(in_processes(backend, replicas, check_all_sizes));
  }
}

TEST_CASE("what replicas of a host share is one memory, or symmetric copies of it", "[symmetric]") {
  for (const comm::Copies copies : {comm::Copies::each, comm::Copies::one}) {
    const auto body = [&](comm::Communicator& group) {
      const Symmetric buffer(group, 1000, copies);
      expect(buffer.is_common() == (copies == comm::Copies::one), "is_common()");
      if (group.rank() == 1) buffer.floats(0, 1)[0] = 7;
      group.barrier();
      const bool sees_it = buffer.floats(0, 1)[0] == 7;
      expect(sees_it == (group.rank() == 1 || copies == comm::Copies::one),
             "who sees what 1 wrote");
    };
    CHECK_NOTHROW(in_threads(Backend::shared, 3, body));
    CHECK_NOTHROW(in_processes(Backend::shared, 3, body));
  }
  CHECK_NOTHROW(in_threads(Backend::gloo, 2, [](comm::Communicator& group) {
    expect(!Symmetric(group, 10, comm::Copies::one).is_common(), "over Gloo each has its own");
  }));
}

TEST_CASE("a subgroup uses the buffers that the whole group has allocated", "[symmetric]") {
  const auto body = [](comm::Communicator& world) {
    constexpr std::size_t kCount = 70001;
    const Symmetric buffer(world, kCount);
    const std::vector<int> members =
        world.rank() % 2 == 0 ? std::vector<int>{4, 0, 2} : std::vector<int>{1, 3};
    const auto group = world.subgroup(members);
    for (int repetition = 0; repetition < 3; ++repetition) {
      const auto x = buffer.fill(values_of(world.rank(), kCount));
      group->all_reduce(raw(x), raw(x), kFloat, kSum);
      expect(same(x, sum_of(members, kCount)), "the subgroup's sum");
    }
    world.barrier();
  };
  CHECK_NOTHROW(in_threads(Backend::shared, 5, body));
  CHECK_NOTHROW(in_processes(Backend::shared, 5, body));
}

TEST_CASE("more than the host has is an error with the numbers, on all replicas", "[symmetric]") {
  const Backend backend = GENERATE(Backend::gloo, Backend::shared);
  INFO(name_of(backend));
  const auto body = [&](comm::Communicator& group) {
    const bool is_shared = backend == Backend::shared;
    const auto total = (is_shared ? static_cast<std::size_t>(group.size()) : 1) << 45U;
    expect_error<CommError>([&] { (void)group.allocate(std::size_t{1} << 45); },
                            str("it takes ", total, " bytes, and the host has "));
    group.barrier();  // and the group still works
    (void)group.allocate(100);
  };
  for (const int replicas : {1, 2}) {
    CHECK_NOTHROW(in_threads(backend, replicas, body));
    CHECK_NOTHROW(in_processes(backend, replicas, body));
  }
}
