#include "trainers/plan/step_timeline.h"

#include <cstddef>
#include <vector>

#include "tests/catch.h"

using lockstep::plan::BucketWork;
using lockstep::plan::step_time;
using lockstep::plan::StepCalls;
using lockstep::plan::StepTime;
using lockstep::plan::StepWork;

namespace {

// A byte takes a second.
double seconds_of(std::size_t bytes) {
  return static_cast<double>(bytes);
}

// Two buckets, of which the second one has the forward's first half.
StepWork two_halves(std::size_t bytes) {
  return {.forward = 10,
          .backward = 20,
          .update = 1,
          .buckets = {{.gradient_bytes = bytes, .parameter_bytes = bytes, .ready = 10, .needed = 5},
                      {.gradient_bytes = bytes, .parameter_bytes = bytes, .ready = 20}}};
}

}  // namespace

TEST_CASE("without a network a step takes what it computes") {
  StepWork work = two_halves(4);
  work.microbatches = 3;
  work.data = 2;
  work.rest = 1;
  CHECK(step_time(work, {}).seconds == 3 * (2 + 10 + 20 + 1) + 1);
  CHECK(step_time(work, {}).exposed == 0);
}

TEST_CASE("of reductions those are exposed that end after the backward") {
  const StepCalls calls{.reduce = seconds_of, .votes = 0.5};
  // The first one ends before the second one is ready.
  const StepTime small = step_time(two_halves(4), calls);
  CHECK(small.seconds == Approx(10 + 20 + 4 + 0.5 + 1));
  CHECK(small.exposed == Approx(4.5));
  CHECK(small.communication == Approx(8.5));
  // The second one waits for the first one.
  CHECK(step_time(two_halves(15), calls).exposed == Approx(2 * 15 - 10 + 0.5));
  // What a call takes beside its messages comes before them.
  StepCalls slow = calls;
  slow.per_call = 2;
  CHECK(step_time(two_halves(4), slow).exposed == Approx(2 + 4 + 0.5));
  // Without overlap all are.
  slow.overlaps = false;
  CHECK(step_time(two_halves(4), slow).exposed == Approx(8 + 0.5));
}

TEST_CASE("of several microbatches the last one's gradients are reduced, or each one's") {
  StepWork work = two_halves(4);
  work.microbatches = 3;
  const StepCalls calls{.reduce = seconds_of};
  CHECK(step_time(work, calls).seconds == Approx(3 * 30 + 1 + 4));
  work.reduces_every_microbatch = true;
  CHECK(step_time(work, calls).seconds == Approx(3 * 34 + 1));
}

TEST_CASE("parameters come after the update, or late, before the forward needs them") {
  const StepCalls calls{.reduce = [](std::size_t) { return 0.0; }, .gather = seconds_of};
  StepWork work = two_halves(4);
  CHECK(step_time(work, calls).exposed == Approx(8));
  // The forward begins with the second bucket, which comes first; the other one comes meanwhile.
  for (BucketWork& bucket : work.buckets) bucket.may_be_late = true;
  CHECK(step_time(work, calls).exposed == Approx(4));
  // Where links are slow it waits for both.
  for (BucketWork& bucket : work.buckets) bucket.parameter_bytes = 9;
  CHECK(step_time(work, calls).exposed == Approx(9 + (9 - 5)));
}

TEST_CASE("cut parameters are gathered for forward and backward, the next block's meanwhile") {
  const StepCalls calls{.reduce = [](std::size_t) { return 0.0; }, .gather = seconds_of};
  StepWork work = two_halves(4);
  for (BucketWork& bucket : work.buckets) bucket.is_cut = true;
  // In the forward the first one's alone is exposed, in the backward each.
  CHECK(step_time(work, calls).exposed == Approx(4 + 2 * 4));
  for (BucketWork& bucket : work.buckets) bucket.parameter_bytes = 7;
  CHECK(step_time(work, calls).exposed == Approx(7 + (7 - 5) + 2 * 7));
}
