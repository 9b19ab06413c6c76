#include "framework/base/stream_copy.h"

#include <cstddef>
#include <span>
#include <vector>

#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("a copy past the caches copies all bytes and no others, from and to any address") {
  std::vector<std::byte> source(1000);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7 + 1);
  for (const std::size_t size : {0U, 1U, 63U, 64U, 65U, 127U, 128U, 200U, 513U}) {
    for (std::size_t from = 0; from < 70; from += 3) {
      for (std::size_t to = 0; to < 70; ++to) {
        std::vector<std::byte> target(700, std::byte{0});
        std::vector<std::byte> expected = target;
        for (std::size_t i = 0; i < size; ++i) expected[to + i] = source[from + i];
        stream_copy(std::span(source).subspan(from, size), std::span(target).subspan(to));
        if (target != expected) FAIL(size << " bytes from " << from << " to " << to);
      }
    }
  }
}
