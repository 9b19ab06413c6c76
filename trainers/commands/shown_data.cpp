#include "trainers/commands/shown_data.h"

#include <cstdint>
#include <utility>

#include "framework/base/text.h"
#include "framework/data/description.h"
#include "framework/data/sampler.h"
#include "trainers/config/config_options.h"

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

WantedSets wanted_sets(const std::vector<std::string>& splits) {
  WantedSets wanted{.train = false, .validation = false, .test = false};
  for (const std::string& split : splits) {
    bool* const named = split == kTrainSet        ? &wanted.train
                        : split == kValidationSet ? &wanted.validation
                        : split == kTestSet       ? &wanted.test
                                                  : nullptr;
    require(named != nullptr, "--split ", cut(split), ": must be train, validation or test");
    *named = true;
  }
  return wanted;
}

std::vector<std::string> data_lines(const Config& config, const DataSets& data) {
  std::vector<std::string> lines = describe(data);
  const SamplerOptions options = sampler_options(config, data);
  const std::int64_t steps = Sampler(options).steps_per_epoch();
  const std::int64_t full = options.batch_size * options.replicas;
  const std::int64_t rest = options.size % full;
  std::string text = str(counted(steps, "step"), " an epoch, of ", counted(full, "sample"));
  if (steps == 1 && rest == options.size) {
    text = str("1 step an epoch, of all ", counted(options.size, "sample"));
  } else if (rest > 0) {
    text += options.drop_last ? str("; ", rest, " are left out of each epoch")
                              : str(", the last of ", rest);
  }
  lines.push_back(text);
  for (std::string& line : lines) line.insert(0, "data: ");
  return lines;
}

}  // namespace lockstep
