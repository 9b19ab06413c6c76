#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/axis_queue.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/psum.h"
#include "framework/maps/vmap.h"
#include "framework/timeline/recorder.h"
#include "tests/catch.h"
#include "tests/launch/launched.h"

using namespace lockstep;
using namespace lockstep::testing;
using timeline::SpanKind;

namespace {

constexpr std::int64_t kReplicas = 3;

std::vector<timeline::Recorder::Span> spans_of(std::int64_t replica, std::size_t track = 0) {
  return timeline::track_here->recorder().read(static_cast<int>(replica), track).spans;
}

std::string calls_of(const std::vector<timeline::Recorder::Span>& spans) {
  return join(mapped(spans, [](const timeline::Recorder::Span& span) {
    return str(name_of(span.kind), ' ', span.name.substr(0, span.name.rfind(':')), ' ', span.bytes);
  }));
}

// Throws unless all replicas have recorded the same ended calls, `expected`.
void check_alike(const std::string& expected, std::size_t track = 0) {
  barrier("data");
  const auto own = spans_of(axis_index("data"), track);
  const std::size_t count = own.size() - (track == 0 ? 1 : 0);  // without the barrier
  std::set<std::uint64_t> ids;
  for (std::int64_t replica = 0; replica < kReplicas; ++replica) {
    auto spans = spans_of(replica, track);
    require<Error>(spans.size() >= count, "replica ", replica, " has ", spans.size(), " spans");
    spans.resize(count);
    require<Error>(calls_of(spans) == expected, "replica ", replica, ": ", calls_of(spans));
    for (std::size_t i = 0; i < count; ++i) {
      require<Error>(spans[i].id == own[i].id && spans[i].end != 0, "call ", i);
      ids.insert(spans[i].id);
    }
  }
  require<Error>(ids.size() == count, ids.size(), " ids");
  barrier("data");
}

}  // namespace

TEST_CASE("replicas record their collectives, with one id for all replicas of a call") {
  for (const LaunchMode mode : kModes) {
    for (const std::int64_t workers : {1, 2, 3}) {
      check_launched(
          [] {
            const Tensor x = at::ones({2});
            for (int i = 0; i < 2; ++i) static_cast<void>(psum(x, "data"));
            Tensor tracked = at::ones({4}).requires_grad_();
            psum(tracked, "data").sum().backward();
            // Lanes are no replicas of the job.
            static_cast<void>(vmap([](const Tensor& lane) { return psum(lane, "lanes"); },
                                   {.axis_name = "lanes"})(x));
            const std::string at = " over 'data' at recorded_process_test.cpp ";
            check_alike(str("collective psum", at, "8, collective psum", at, "8, collective psum",
                            at, "16, collective the backward of psum", at, "16"));
          },
          {.replicas = kReplicas, .workers = workers, .mode = mode});
    }
  }
}

TEST_CASE("what goes on beside a replica has a track of its own") {
  check_launched(
      [] {
        collectives::AxisQueue queue("data", /*overlap=*/true, "reductions");
        require<Error>(queue.overlaps(), "nothing goes on beside it");
        const Tensor x = at::ones({4});
        const Tensor whole = at::ones({12});
        for (int i = 0; i < 2; ++i) {
          auto reduced = queue.pmean_(x);
          auto gathered = queue.all_gather_into(whole, x);
          queue.wait(reduced);
          queue.wait(gathered);
        }
        check_alike("reduction  16, gather  16, reduction  16, gather  16", 1);
        require<Error>(timeline::track_here->recorder().read(0, 1).track == "reductions",
                       "its name");
        // Among its own calls, the replica waits for them, each by its id.
        auto own = spans_of(axis_index("data"));
        std::erase_if(own, [](const auto& span) { return span.kind == SpanKind::collective; });
        const auto id_of = [](const timeline::Recorder::Span& span) { return span.id; };
        require<Error>(mapped(own, id_of) == mapped(spans_of(axis_index("data"), 1), id_of),
                       calls_of(own));
        require<Error>(own[1].kind == SpanKind::gather && own[2].kind == SpanKind::reduction,
                       calls_of(own));
      },
      {.replicas = kReplicas, .backend = Backend::gloo});
}
