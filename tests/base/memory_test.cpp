#include "framework/base/memory.h"

#include <cstddef>

#include <unistd.h>

#include "tests/catch.h"

using lockstep::available_memory;

TEST_CASE("what is available is some of the machine's memory") {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t all = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * page;
  CHECK(available_memory() > std::size_t{1} << 20);
  CHECK(available_memory() < all);
}
