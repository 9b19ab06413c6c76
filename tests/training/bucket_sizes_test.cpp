#include "framework/training/bucket_sizes.h"

#include <tuple>

#include "tests/catch.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr std::int64_t kMiB = 1 << 20;

}  // namespace

TEST_CASE("sizes of buckets follow from the option, the model and the link") {
  using training::bucket_sizes;
  const LinkCost link{.call_s = 1e-3, .bytes_per_s = 1e8};  // a MB takes ten calls' time
  // What the user says, in any case.
  CHECK(bucket_sizes(0.5, 100 * kMiB, 4, link) == tree::BucketSizes(kMiB / 2));
  CHECK(bucket_sizes(1e-9, 100 * kMiB, 4, link) == tree::BucketSizes(1));
  CHECK(bucket_sizes(3.0, 100 * kMiB, 4, {}) == tree::BucketSizes(3 * kMiB));
  // Where nothing overlaps.
  CHECK(bucket_sizes({}, kMiB, 4, {}) == tree::BucketSizes(25 * kMiB));
  // An eighth of the model, but worth a call; a quarter of that at both ends.
  CHECK(bucket_sizes({}, 80 * kMiB, 4, link) == tree::BucketSizes(10 * kMiB, 10 * kMiB / 4));
  CHECK(bucket_sizes({}, 16 * kMiB, 4, link) == tree::BucketSizes(2 * kMiB, kMiB));
  CHECK(bucket_sizes({}, kMiB, 4, link) == tree::BucketSizes(kMiB));
  CHECK(bucket_sizes({}, 10'000 * kMiB, 4, link) == tree::BucketSizes(25 * kMiB, 25 * kMiB / 4));
  // A slower link or one nearer by is worth smaller buckets, a faster one larger ones.
  CHECK(bucket_sizes({}, 4 * kMiB, 4, LinkCost{1e-3, 1e7}) ==
        tree::BucketSizes(kMiB / 2, kMiB / 8));
  CHECK(bucket_sizes({}, 4 * kMiB, 4, LinkCost{1e-4, 1e8}) ==
        tree::BucketSizes(kMiB / 2, kMiB / 8));
  CHECK(bucket_sizes({}, kMiB, 4, LinkCost{1e-6, 1e6}) == tree::BucketSizes(kMiB / 8, kMiB / 16));
  CHECK(bucket_sizes({}, kMiB, 4, LinkCost{1e-3, 1e9}) == tree::BucketSizes(16 * kMiB));
  CHECK(bucket_sizes({}, kMiB, 4, LinkCost{1, 1e10}) == tree::BucketSizes(32 * kMiB));
  // Padding for many shards.
  CHECK(bucket_sizes({}, kMiB, 1024, LinkCost{1e-6, 1e6}) == tree::BucketSizes(2 * kMiB));
}

TEST_CASE("chosen buckets are alike on all replicas, and give the bits of any others") {
  const Quiet quiet;
  constexpr std::int64_t kLarge = 9'000;
  for (const int stage : {0, 1, 2, 3}) {
    ZeroOptions options = adam(stage);
    REQUIRE(!options.bucket_mb);
    const Parameters chosen = trained_in_job(threads(3, Backend::gloo), options, kLarge);
    CHECK(first_difference(trained_in_pmap(3, options, kLarge), chosen) == "");
    options.bucket_mb = 3e-4;
    CHECK(first_difference(trained_in_job(threads(3, Backend::gloo), options, kLarge), chosen) ==
          "");
  }
}

TEST_CASE("memory with chosen buckets is what was predicted for the link") {
  const Quiet quiet;
  for (const int stage : {0, 1, 2}) {
    const auto [cost, predicted, measured] = result_of_job(threads(3, Backend::gloo), [&] {
      OddModel model(20'000);
      ZeroTrainer trainer(model, adam(stage));
      (void)train_step(trainer, model, 0, 1, "data");
      const ReplicaPlacement placement{
          .replicas = 3, .shares_memory = false, .link = trainer.link_cost().value()};
      return std::tuple(placement.link, predicted_memory(model, adam(stage), placement).largest,
                        trainer.memory());
    });
    // On one host nobody measures a link, so all jobs have these.
    CHECK(training::bucket_sizes({}, kMiB, 3, cost) == tree::BucketSizes(2 * kMiB));
    CHECK(measured.communication == predicted.communication);
    CHECK(measured.parameters == predicted.parameters);
    CHECK(measured.gradients == predicted.gradients);
  }
}
