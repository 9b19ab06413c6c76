#include "framework/training/worker_gradient_sums.h"

#include <bit>
#include <cstring>
#include <random>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "framework/collectives/message.h"
#include "framework/reduce/reduce.h"
#include "tests/catch.h"
#include "tests/support/settings.h"

using namespace lockstep;

TEST_CASE("sums made in turn, one after the other, are those of all gradients, in few buffers") {
  std::mt19937_64 random(lockstep::testing::seed());
  std::normal_distribution<float> normal;
  for (int replicas = 1; replicas <= 17; ++replicas) {
    const tree::FlatLayout layout({{100, at::kFloat}, {70, at::kDouble}}, {0, 1}, 64, 1);
    training::WorkerGradientSums turns(layout, replicas);
    for (int round = 0; round < 3; ++round) {
      std::vector<training::WorkerGradientSums::Set> own;
      for (int replica = 0; replica < replicas; ++replica) {
        training::WorkerGradientSums::Set set = turns.take();
        own.emplace_back();
        for (const at::Tensor& values : set) {
          const at::Tensor drawn = at::empty(values.sizes(), at::kDouble);
          for (std::int64_t i = 0; i < drawn.numel(); ++i) {
            drawn.data_ptr<double>()[i] = random() % 7 == 0 ? -0.0 : normal(random);
          }
          values.copy_(drawn);
          own.back().push_back(values.clone());
        }
        turns.give(replica, std::move(set));
      }
      std::vector<training::WorkerGradientSums::Set> brought;
      for (int replica = 0; replica < replicas; ++replica) {
        brought.push_back(turns.brought_by(replica));
      }
      for (std::size_t bucket = 0; bucket < 2; ++bucket) {
        const auto sum_of = [&](const std::vector<training::WorkerGradientSums::Set>& sets) {
          const at::Tensor sum = at::empty_like(own[0][bucket]);
          std::vector<const std::byte*> inputs;
          for (const auto& set : sets) inputs.push_back(collectives::bytes_of(set[bucket]).data());
          reduce::reduce(inputs, collectives::bytes_of(sum),
                         bucket == 0 ? ElementType::float32 : ElementType::float64, ReduceOp::sum);
          return sum;
        };
        // To the sign of a zero.
        const at::Tensor all = sum_of(own);
        const at::Tensor few = sum_of(brought);
        CHECK(std::memcmp(all.data_ptr(), few.data_ptr(), all.nbytes()) == 0);
      }
      brought.clear();
      for (int replica = 0; replica < replicas; ++replica) turns.finish();
    }
    const std::int64_t set_bytes = 128 * 4 + 128 * 8;
    std::int64_t bytes = 0;
    for (int place = 0; place < replicas; ++place) bytes += turns.bytes(place);
    CHECK(bytes ==
          training::WorkerGradientSums::sets_of({0, replicas}, /*wait=*/false) * set_bytes);
    // About log2 of them.
    CHECK(bytes <= (std::bit_width(static_cast<unsigned>(replicas)) + 1) * set_bytes);
  }
}
