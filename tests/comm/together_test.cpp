#include "framework/comm/together.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "framework/base/errors.h"
#include "framework/calls/call_table.h"
#include "framework/comm/communicator.h"
#include "framework/comm/group_layout.h"
#include "tests/catch.h"
#include "tests/comm/broken_network.h"
#include "tests/comm/words.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("verbs that fail leave no memory behind for the next ones") {
  constexpr std::size_t kCount = 100'000;
  const std::array<calls::GroupMember, 3> members{calls::GroupMember{.id = 1, .worker = 0},
                                                  calls::GroupMember{.id = 2, .worker = 0},
                                                  calls::GroupMember{.id = 3, .worker = 1}};
  const comm::GroupLayout layout(members, 0);
  comm::Together together(layout, std::make_shared<BrokenNetwork>(0, 2, ErrorKind::comm));
  std::array<Words, 2> words{Words(kCount), Words(kCount)};
  const auto sum = [](Words& of) {
    return comm::Verb{.kind = comm::Verb::Kind::all_reduce,
                      .input = bytes(of),
                      .output = bytes(of),
                      .type = kFloat,
                      .op = kSum};
  };
  const std::array<comm::Verb, 2> verbs{sum(words[0]), sum(words[1])};
  const std::array<const comm::Verb*, 2> both{&verbs[0], &verbs[1]};
  const std::uint64_t before = allocated_bytes();
  for (int i = 0; i < 10; ++i) {
    CHECK(message_of<CommError>([&] { together.run(both); }) == "it is broken");
  }
  CHECK(allocated_bytes() - before < 2 * kCount * sizeof(float));
}
