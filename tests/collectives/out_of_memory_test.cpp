// Memory runs out inside a collective of threads.

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/ones.h>

#include "framework/base/errors.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/psum.h"
#include "framework/maps/pmap.h"
#include "tests/catch.h"
#include "tests/support/allocated_bytes.h"

using namespace lockstep;
using namespace lockstep::testing;

// A sanitizer brings a `new` of its own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {

// Returns the error of a map whose memory has run out; "" if it ends well.
std::string lack_of_memory_in(const std::function<void()>& map) {
  try {
    map();
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("whichever allocation fails in a map's collective, the map says that memory is out") {
  const at::Tensor values = at::ones({2, 1 << 19});  // 4 MiB: the threads share the work
  using Operation = std::pair<const char*, std::function<at::Tensor(const at::Tensor&)>>;
  const std::vector<Operation> operations{
      {"psum", [](const at::Tensor& in) { return psum(in, "data"); }},
      {"pmax", [](const at::Tensor& in) { return pmax(in, "data"); }},
      {"all_gather", [](const at::Tensor& in) { return all_gather(in, "data"); }},
      {"psum_scatter", [](const at::Tensor& in) { return psum_scatter(in, "data"); }}};
  for (const auto& [name, operation] : operations) {
    std::int64_t failed = 0;
    for (bool has_failed = true; has_failed; failed += has_failed ? 1 : 0) {
      // Allocations fail from the first replica's begin to the last one's end.
      std::atomic<int> begun = 0;
      std::atomic<int> ended = 0;
      const std::string message = lack_of_memory_in([&, &call = operation] {
        pmap(
            [&] {
              if (begun++ == 0) (void)fail_allocation(failed + 1);
              const std::shared_ptr<void> end(nullptr, [&](void*) {
                if (++ended == 2) has_failed = fail_allocation(0) == 0;
              });
              (void)call(values);
            },
            {.axis_name = "data", .axis_size = 2})();
      });
      INFO(name << ", allocation " << failed + 1);
      CHECK_THAT(message, has_failed ? ContainsSubstring("out of memory") : ContainsSubstring(""));
      CHECK(message.empty() != has_failed);
    }
    CHECK(failed > 30);
  }
}
#endif
