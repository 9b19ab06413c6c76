#include "tests/training/zero_jobs.h"

#include <mutex>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/maps/pmap.h"
#include "tests/collectives/cases.h"

namespace lockstep::testing {

ZeroOptions adam(int stage, const AxisNames& axis) {
  return {.axis_name = axis,
          .stage = stage,
          .optimizer = {.name = "adam", .lr = kRate},
          .clip_norm = 0.05};
}

StepReport train_step(ZeroTrainer& trainer, OddModel& model, std::int64_t step,
                      std::int64_t microbatches, const AxisNames& axis) {
  const std::int64_t first = axis_index(axis) * kBatch * microbatches;
  for (std::int64_t m = 0; m < microbatches; ++m) {
    const at::Tensor loss = mean_loss(model, samples(step, first + m * kBatch, kBatch));
    trainer.backward(microbatches == 1 ? loss : loss / static_cast<double>(microbatches));
  }
  return trainer.step(kRate);
}

namespace {

Parameters trained(ZeroOptions options, std::int64_t large) {
  OddModel model(large);
  ZeroTrainer trainer(model, options);
  for (std::int64_t step = 0; step < 5; ++step) {
    train_step(trainer, model, step, options.accumulate, options.axis_name);
  }
  const auto whole = trainer.whole_parameters();
  return copies(model);
}

}  // namespace

Parameters result_of_map(std::int64_t replicas, const std::function<Parameters()>& train) {
  std::mutex mutex;
  Parameters result;
  pmap(
      [&] {
        const Parameters own = train();
        const std::lock_guard lock(mutex);
        if (result.empty()) result = own;
        const std::string different = first_difference(own, result);
        if (!different.empty()) throw Error("replicas differ in " + different);
      },
      {.axis_size = replicas})();
  return result;
}

Parameters trained_in_pmap(std::int64_t replicas, ZeroOptions options, std::int64_t large) {
  options.axis_name = "i";
  return result_of_map(replicas, [&] { return trained(options, large); });
}

Parameters trained_in_job(const LaunchOptions& launch_options, const ZeroOptions& options,
                          std::int64_t large) {
  return result_of_job(launch_options, [&] { return trained(options, large); });
}

Parameters visited_parameters(ZeroTrainer& trainer) {
  Parameters all;
  trainer.visit_parameters([&](const std::string& name, const at::Tensor& value) {
    all[name] = value.detach().clone();
  });
  return all;
}

Pieces state_pieces(Stateful& training, const std::string& kind) {
  Pieces pieces;
  training.visit_state([&](const StatePiece& piece) {
    if (!piece.name.starts_with(kind)) return;
    pieces[{piece.name.substr(kind.size()), piece.offset}] = piece.values.clone();
  });
  return pieces;
}

void expect_same_pieces(const Pieces& actual, const Pieces& expected) {
  expect(actual.size() == expected.size(), "other pieces");
  for (const auto& [place, values] : expected) {
    expect(actual.contains(place) && actual.at(place).equal(values), "another " + place.first);
  }
}

LaunchOptions threads(std::int64_t replicas, Backend backend, std::int64_t workers) {
  return {
      .replicas = replicas, .workers = workers, .mode = LaunchMode::threads, .backend = backend};
}

}  // namespace lockstep::testing
