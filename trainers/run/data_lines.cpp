#include "trainers/run/data_lines.h"

#include "framework/base/text.h"
#include "framework/data/description.h"
#include "framework/data/sampler.h"
#include "trainers/config/config_options.h"

namespace lockstep {

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
