#include "trainers/commands/shown_search.h"

#include <utility>

namespace lockstep {

DamageSearch ShownSearch::of(DamageSearch search) {
  search.progress = [this](std::int64_t done, std::int64_t samples) { note(done, samples); };
  return search;
}

void ShownSearch::note(std::int64_t done, std::int64_t samples) {
  if (done < std::exchange(last_, done)) begin_ = Clock::now();
  progress_.note({.step = done,
                  .total = samples,
                  .epoch = -1,
                  .elapsed_s = std::chrono::duration<double>(Clock::now() - begin_).count(),
                  .unit = "sample"});
  if (done == samples) progress_.finish();
}

DataSets load_shown(const keys::Picked& picked, DataContext context, bool quiet) {
  ShownSearch shown(stderr, quiet);
  context.search = shown.of(std::move(context.search));
  return load_data(picked, context);
}

}  // namespace lockstep
