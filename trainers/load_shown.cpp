#include "trainers/load_shown.h"

#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "framework/telemetry/progress.h"

namespace lockstep {

void with_shown_search(DamageSearch search, bool quiet,
                       const std::function<void(const DamageSearch& search)>& work) {
  using Clock = std::chrono::steady_clock;
  Progress progress(stderr, quiet);
  const std::jthread ticks = progress_ticks(progress);
  Clock::time_point begin = Clock::now();
  search.progress = [&](std::int64_t done, std::int64_t samples) {
    if (done <= 1) begin = Clock::now();  // another set
    progress.note({.step = done,
                   .total = samples,
                   .epoch = -1,
                   .elapsed_s = std::chrono::duration<double>(Clock::now() - begin).count(),
                   .unit = "sample"});
    if (done == samples) progress.finish();
  };
  work(search);
}

DataSets load_shown(const keys::Picked& picked, DataContext context, bool quiet) {
  DataSets sets;
  with_shown_search(context.search, quiet, [&](const DamageSearch& search) {
    context.search = search;
    sets = load_data(picked, context);
  });
  return sets;
}

}  // namespace lockstep
