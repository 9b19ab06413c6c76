#include "trainers/run/run_alone.h"

#include "framework/base/logging.h"
#include "framework/replicas/launch.h"

namespace lockstep {

int run_alone(const Config& config, const std::function<void()>& work) {
  set_quiet(true);
  return launch(work, {.replicas = 1,
                       .mode = LaunchMode::threads,
                       .axis_name = config.launch.axis_name,
                       .threads_per_replica = config.launch.threads_per_replica});
}

}  // namespace lockstep
