#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/comm/link_speed.h"
#include "framework/data/data.h"
#include "framework/objectives/objectives.h"
#include "framework/optim/optimizers.h"
#include "models/model.h"
#include "trainers/config/config.h"

namespace lockstep {
namespace keys {
namespace {

bool is_identifier(const std::string& text) {
  constexpr std::string_view kParts = "0123456789_abcdefghijklmnopqrstuvwxyz";
  constexpr std::size_t kDigits = 10;
  return !text.empty() && text.size() <= 100 &&
         lower(text).find_first_not_of(kParts) == std::string::npos &&
         kParts.find(lower(text)[0]) >= kDigits;
}

const Rule<std::string> kIdentifier{"1 to 100 letters, digits and _, and begin with no digit",
                                    is_identifier,
                                    {"_a1", "1a", "größe"}};
const Rule<std::int64_t> kReplicas = from_to<std::int64_t>(1, kMostReplicas);
const Rule<std::int64_t> kUpToReplicas = from_to<std::int64_t>(0, kMostReplicas);
const Rule<std::int64_t> kThreads = from_to<std::int64_t>(0, kMostReplicasOfHost);

// A millisecond at least, and within 64 bits in any unit of time.
const Rule<double> kTimeout = from_to(0.001, 1e6);
const Rule<double> kStallWarning = from_to(0.0, 1e6);

bool is_link(const std::string& text) {
  if (text == "auto") return true;
  try {
    (void)comm::LinkSpeed::parse(text);
    return true;
  } catch (const ValueError&) {
    return false;
  }
}

const Rule<std::string> kLink{
    "auto, or a speed such as '0.21 ms, 117 MB/s'", is_link, {"auto", "0.21 ms, 117 MB/s"}};

// A section that picks one of `registry` by its first key, whose value may stand for it ("model:
// mlp"), and has other keys behind those of the choices.
template <typename Registry>
Section picking(const std::string& section, Picked& picked, const Registry& registry,
                const std::string& help, bool is_required, const ConfigKeys& others = {}) {
  ConfigKeys keys{{"name",
                   one_of(picked.name, registry.names()),
                   help,
                   {.required = is_required, .is_short_form = true}}};
  keys.insert(keys.end(), others.begin(), others.end());
  Section made{section, std::move(keys)};
  add_choices(made, picked.all, registry.choices());
  return made;
}

ConfigKeys parallel_keys(LaunchOptions& launch, ZeroOptions& zero) {
  const auto workers_problem = [&launch] {
    if (launch.workers <= launch.replicas) return std::string();
    return str("must be at most parallel.replicas, which is ", launch.replicas,
               ", or 0 for as many; is ", launch.workers);
  };
  const KeyTraits workers{.problem = workers_problem, .others = {"replicas"}, .may_change = true};
  return {
      {"replicas", number(launch.replicas, kReplicas), "number of replicas", kMayChange},
      {"workers", number(launch.workers, kUpToReplicas), "how many replicas run at once; 0: all",
       workers},
      {"launch",
       one_of(launch.mode, {name_of(LaunchMode::processes), name_of(LaunchMode::threads)}),
       "replicas are processes or threads", kMayChange},
      {"axis_name", text(launch.axis_name, kIdentifier), "the replicas' axis in collectives",
       kMayChange},
      {"backend", one_of(launch.backend, {"auto", "gloo"}),
       "how replicas exchange bytes; auto: in memory that they share", kMayChange},
      {"threads_per_replica", number(launch.threads_per_replica, kThreads),
       "math threads; 0: the host's cores (or CPU quota) / replicas, at least 1"},
      {"timeout_s", seconds(launch.timeout, kTimeout), "seconds that a replica waits for another",
       kMayChange},
      {"stall_warn_s", seconds(launch.stall_warning, kStallWarning),
       "seconds of a wait until a warning names the missing; 0: none", kMayChange},
      {"prints", one_of(launch.prints, {"first", "all"}),
       "whose prints stdout has: the first worker's, or those of all, with a prefix", kMayChange},
      {"link", text(launch.hosts.link, kLink),
       "latency and bandwidth between hosts, which decide schedules and bucket sizes; auto: "
       "measured",
       kMayChange},
      {"allow_mixed", flag(launch.hosts.allow_mixed),
       "hosts may differ in program, LibTorch, BLAS and CPU, which may change the results",
       kMayChange},
      {"zero_stage", number(zero.stage, kStageRule),
       "ZeRO shards from 1 the optimizer's state, 2 also gradients, 3 also parameters", kMayChange},
      {"bucket_mb", number_or_auto(zero.bucket_mb, kBucketMbRule),
       "MB of gradients that travel together; auto: by the model and, over a network, its speed",
       kMayChange},
      {"overlap", one_of(zero.overlap, {"auto", "on", "off"}),
       "reduce gradients during the backward; auto: over a network", kMayChange},
      {"compression", one_of(zero.compression, {"none", "bf16"}),
       "type in which gradients travel; bf16 changes the results"},
      {"reduce_every_microbatch", flag(zero.reduce_every_microbatch),
       "sends more bytes for less memory at stages 2 and 3"},
  };
}

}  // namespace
}  // namespace keys

std::vector<keys::Section> config_table(Config& config) {
  using namespace keys;
  return {picking("model", config.model, model_registry(), "the model that is trained",
                  /*is_required=*/true, init_keys(config.init)),
          picking("data", config.data, data_registry(), "the data set that it is trained on",
                  /*is_required=*/true, data_use_keys(config.data_use)),
          picking("loss", config.loss, loss_registry(), "what training makes small",
                  /*is_required=*/false),
          optimizer_section(config.zero.optimizer),
          schedule_section(config.schedule),
          {"parallel", parallel_keys(config.launch, config.zero)},
          {"trainer", trainer_keys(config.trainer, config.zero, config.launch)},
          {"checkpoint", checkpoint_keys(config.checkpoint)},
          {"telemetry", telemetry_keys(config.telemetry)}};
}

}  // namespace lockstep
