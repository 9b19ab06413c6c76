#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <unistd.h>

#include "framework/axes/environment.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/axis_queue.h"
#include "framework/launch/launch.h"
#include "tests/catch.h"
#include "tests/collectives/cases.h"
#include "tests/launch/launched.h"
#include "tests/support/ended.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Several calls under way at once give the bits of calls that return when they are done.
void check_started(bool overlap, bool is_network) {
  const std::int64_t n = axis_size("data");
  collectives::AxisQueue queue("data", overlap);
  expect(queue.overlaps() == (overlap && is_network), "overlaps only over a network");
  for (const std::int64_t count : {0, 1, 4099, 70001}) {
    const Tensor values = at::arange(n * count) * static_cast<double>(axis_index("data") + 3) / 7;
    const Tensor mean = values.clone();
    const Tensor slice = at::empty({count}, values.options());
    const Tensor gathered = at::empty_like(values);
    std::vector<collectives::AxisQueue::Call> calls{queue.pmean_(mean),
                                                    queue.pmean_scatter_into(slice, values),
                                                    queue.all_gather_into(gathered, slice)};
    for (int again = 0; again < 2; ++again) {
      for (auto& call : calls) queue.wait(call);
    }
    const Tensor expected = values.clone();
    pmean_(expected, "data");
    expect(mean.equal(expected), "pmean_");
    expect(slice.equal(expected.narrow(0, axis_index("data") * count, count)),
           "pmean_scatter_into");
    expect(gathered.equal(expected), "all_gather_into");
  }
}

}  // namespace

TEST_CASE("a queue's calls have the results of those that return when they are done") {
  for (const Backend backend : {Backend::automatic, Backend::gloo}) {
    for (const LaunchMode mode : kModes) {
      for (const bool overlap : {true, false}) {
        INFO("overlap " << overlap);
        check_launched([=] { check_started(overlap, backend == Backend::gloo); },
                       {.replicas = 3, .mode = mode, .backend = backend});
      }
    }
  }
}

TEST_CASE("a queue's calls overlap also where replicas take turns in a worker") {
  for (const std::int64_t workers : {2, 3}) {
    for (int again = 0; again < 5; ++again) {
      check_launched([=] { check_started(true, true); },
                     {.replicas = 5, .workers = workers, .backend = Backend::gloo});
    }
  }
}

TEST_CASE("a replica that is lost ends all calls of a queue") {
  const Ended ended = launched(
      [] {
        collectives::AxisQueue queue("data", true);
        meet();
        if (axis_index("data") == 1) ::_exit(0);
        const Tensor x = at::arange(1000000.);
        std::vector<collectives::AxisQueue::Call> calls{queue.pmean_(x), queue.pmean_(x.clone())};
        for (auto& call : calls) queue.wait(call);
      },
      {.replicas = 2, .mode = LaunchMode::processes, .backend = Backend::gloo});
  check_status(ended, 3);
}
