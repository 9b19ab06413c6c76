#include "framework/base/shard.h"

#include "tests/catch.h"

using lockstep::shard;

TEST_CASE("shards cover everything once, in order, in sizes that differ by at most one") {
  for (std::int64_t count = 0; count <= 20; ++count) {
    for (std::int64_t parts = 1; parts <= 9; ++parts) {
      std::int64_t next = 0;
      for (std::int64_t index = 0; index < parts; ++index) {
        const auto part = shard(count, parts, index);
        CHECK(part.offset == next);
        CHECK((part.size == count / parts || part.size == count / parts + 1));
        next += part.size;
      }
      CHECK(next == count);
    }
  }
}
