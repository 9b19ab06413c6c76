#include "framework/comm/gloo/gloo_communicator.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "framework/base/errors.h"
#include "framework/comm/memory_store.h"
#include "tests/catch.h"
#include "tests/comm/replicas.h"
#include "tests/comm/words.h"

using namespace lockstep;
using testing::Backend;
using testing::bytes;
using testing::expect;
using testing::in_threads;
using testing::kFloat;
using testing::kSum;
using testing::Words;

TEST_CASE("bytes on the wire are the optimum", "[gloo]") {
  const Backend backend = GENERATE(Backend::gloo, Backend::tcp);
  INFO(name_of(backend));
  for (const std::uint64_t n : {1, 2, 3, 4, 5, 8}) {
    CHECK_NOTHROW(in_threads(backend, static_cast<int>(n), [&](comm::Communicator& group) {
      const std::size_t count = 840 * 1024;  // a multiple of every group's size
      const std::uint64_t size = count * sizeof(float);
      Words words(count);
      Words part(count / n);
      std::uint64_t before = 0;
      std::uint64_t rounds = 0;
      const auto sent = [&] {
        const std::uint64_t now = group.ledger().bytes_sent;
        return now - std::exchange(before, now);
      };
      const auto waited = [&] {
        const std::uint64_t now = group.ledger().rounds;
        return now - std::exchange(rounds, now);
      };
      group.all_reduce(bytes(words), bytes(words), kFloat, kSum);
      expect(sent() == 2 * (n - 1) * size / n, "all_reduce sends 2 (N-1)/N");
      expect(waited() == (n == 1 ? 0 : 2), "a large all_reduce takes two rounds");
      group.reduce_scatter(bytes(words), bytes(part), kFloat, kSum);
      expect(sent() == (n - 1) * size / n, "reduce_scatter sends (N-1)/N");
      group.all_gather(bytes(part), bytes(words));
      expect(sent() == (n - 1) * size / n, "all_gather sends (N-1)/N");
      expect(waited() == (n == 1 ? 0 : 2), "a round each");
      words.resize(256);
      group.all_reduce(bytes(words), bytes(words), kFloat, kSum);
      expect(sent() == (n - 1) * 1024, "a small all_reduce sends N-1 times its size");
      expect(waited() == (n == 1 ? 0 : 1), "a small all_reduce takes one round");
    }));
  }
}

TEST_CASE("a replica that does not arrive is a Timeout that names it", "[failure]") {
  comm::ConnectOptions options;
  options.timeout = std::chrono::milliseconds(200);
  CHECK_THROWS_AS(in_threads(
                      Backend::gloo, 2,
                      [](comm::Communicator& group) {
                        Words words(10);
                        if (group.rank() == 0) {
                          group.all_reduce(bytes(words), bytes(words), kFloat, kSum);
                        }
                      },
                      options),
                  Timeout);
  options.connect_timeout = std::chrono::milliseconds(200);
  CHECK_THROWS_WITH(comm::connect_gloo(std::make_shared<comm::MemoryStore>(), 0, 2, options),
                    ContainsSubstring("nobody published 'address/1/0' within 200 ms"));
}
