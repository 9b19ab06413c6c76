#include <algorithm>
#include <cctype>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/comm/link_speed.h"
#include "framework/data/data.h"
#include "framework/objectives/metric.h"
#include "framework/objectives/objectives.h"
#include "framework/optim/optimizers.h"
#include "models/model.h"
#include "trainers/config/config.h"

namespace lockstep {
namespace keys {
namespace {

bool is_identifier(const std::string& text) {
  const auto is_part = [](unsigned char c) { return c < 128 && (std::isalnum(c) || c == '_'); };
  return !text.empty() && text.size() <= 100 && std::all_of(text.begin(), text.end(), is_part) &&
         !std::isdigit(static_cast<unsigned char>(text[0]));
}

const Rule<std::string> kIdentifier{"1 to 100 letters, digits and _, and begin with no digit",
                                    is_identifier,
                                    {"_a1", "1a", "größe"}};
const Rule<std::int64_t> kReplicas = from_to<std::int64_t>(1, 1024);
const Rule<std::int64_t> kUpToReplicas = from_to<std::int64_t>(0, 1024);

// What a step takes, over all microbatches and replicas, fits in 63 bits.
const Rule<std::int64_t> kBillion = from_to<std::int64_t>(1, 1'000'000'000);
const Rule<std::int64_t> kTrillion = from_to<std::int64_t>(1, 1'000'000'000'000);
const Rule<std::int64_t> kNatural = at_least<std::int64_t>(0);

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

const KeyTraits kNeeded{.required = true};
const KeyTraits kMayChange{.may_change = true};

ConfigKeys model_keys(Picked& model, InitOptions& init) {
  const auto strict_problem = [&init] {
    return !init.strict && !init.from ? "without model.init_from must be true" : "";
  };
  const KeyTraits strict{.problem = strict_problem, .others = {"init_from"}};
  ConfigKeys keys{
      {"name", one_of(model.name, model_registry().names()), "the model that is trained", kNeeded},
      {"init_from", text_or_null(init.from, of_length("a file's path", PATH_MAX - 1)),
       "weights to begin with: a safetensors file, its index, or a checkpoint's folder"},
      {"init_from_strict", flag(init.strict),
       "refuse weights if names are missing there or in the model", strict},
  };
  add_choices(keys, model.all, model_registry().choices());
  return keys;
}

ConfigKeys data_keys(Picked& data, DataUse& use) {
  const KeyTraits batch_size{.defaults = {{"pmean_example", "4"}},  // its samples a replica
                             .may_change = true};
  ConfigKeys keys{
      {"name", one_of(data.name, data_registry().names()), "the data set that it is trained on",
       kNeeded},
      {"batch_size", number(use.batch_size, kBillion), "samples a replica and microbatch",
       batch_size},
      {"shuffle", flag(use.shuffle), "draw a new order of the samples for each epoch"},
      {"drop_last", flag(use.drop_last),
       "leave out an epoch's last samples, if they are fewer than a step takes"},
      {"validation", number(use.validation, from_below(0.0, 1.0)),
       "the part of the training set that becomes the validation set, if the source has none"},
      {"threads", number_or_auto(use.threads, from_to<std::int64_t>(0, 64)),
       "threads a replica that make batches ahead; auto: one where pictures are decoded, else none",
       kMayChange},
  };
  add_choices(keys, data.all, data_registry().choices());
  return keys;
}

ConfigKeys loss_keys(Picked& loss) {
  ConfigKeys keys{{"name",
                   one_of(loss.name, loss_registry().names()),
                   "what training makes small",
                   {.is_short_form = true}}};
  add_choices(keys, loss.all, loss_registry().choices());
  return keys;
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
      {"threads_per_replica", number(launch.threads_per_replica, kUpToReplicas),
       "math threads; 0: the host's cores (or CPU quota) / replicas, at least 1"},
      {"timeout_s", seconds(launch.timeout, kTimeout), "seconds that a replica waits for another",
       kMayChange},
      {"stall_warn_s", seconds(launch.stall_warning, kStallWarning),
       "seconds of a wait until a warning names the missing; 0: none", kMayChange},
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

ConfigKeys trainer_keys(TrainerOptions& trainer, ZeroOptions& zero, const LaunchOptions& launch) {
  const auto instead_of = [](const std::string& one, const std::string& other) {
    return KeyTraits{.instead_of = {one, other}, .may_change = true};
  };
  const auto batch_problem = [&trainer, &launch] {
    if (*trainer.global_batch % launch.replicas == 0) return std::string();
    return str("must be a multiple of parallel.replicas, which is ", launch.replicas, "; is ",
               *trainer.global_batch);
  };
  // One of the two is printed: the other would be refused beside it.
  Value accumulate = number(zero.accumulate, kAccumulateRule);
  accumulate.print = [&zero, &trainer] {
    return trainer.global_batch ? "" : yaml_text(zero.accumulate);
  };
  return {
      {"epochs", number_instead(trainer.epochs, {&trainer.steps, &trainer.samples}, kBillion),
       "the run's length in passes over the data", instead_of("steps", "samples")},
      {"steps", number_instead(trainer.steps, {&trainer.epochs, &trainer.samples}, kBillion),
       "the run's length in updates", instead_of("epochs", "samples")},
      {"samples", number_instead(trainer.samples, {&trainer.epochs, &trainer.steps}, kTrillion),
       "the run's length in samples of all replicas, with those that data.drop_last leaves out; "
       "the "
       "step that reaches them is the last",
       instead_of("epochs", "steps")},
      {"seed", number(zero.seed, at_least<std::uint64_t>(0)), "seed of all that is random"},
      {"accumulate",
       accumulate,
       "microbatches a replica and step",
       {.instead_of = {"global_batch"}, .may_change = true}},
      {"global_batch",
       number_instead(trainer.global_batch, {}, kBillion),
       "samples a step of all replicas, in as many microbatches as they need",
       {.instead_of = {"accumulate"}, .problem = batch_problem, .may_change = true}},
      {"precision", one_of(trainer.precision, {"fp32", "bf16"}),
       "type in which forward and backward compute"},
      {"non_finite", one_of(zero.non_finite, {"stop", "skip"}),
       "where the loss or a gradient is not finite, stop the run or skip the step"},
      {"check_every", number(trainer.check_every, kNatural),
       "after each so many steps replicas compare their parameters; 0: never", kMayChange},
      {"clip_norm", number_or_null(zero.clip_norm, kClipRule),
       "largest norm that the gradients may have; null: any"},
      {"clip_value", number_or_null(zero.clip_value, kClipRule),
       "largest value that a gradient may have; null: any"},
      {"ema_decay", number_or_null(zero.ema_decay, kEmaDecayRule),
       "decay of an average of the parameters, with which evaluations compute; null: none"},
      {"ema_warmup",
       flag(trainer.ema_warmup),
       "update t, from 0, of the average decays by (1 + t) / (10 + t) while that is less",
       {.before = "false", .matters = [&zero] { return zero.ema_decay.has_value(); }}},
      {"log_every", number(trainer.log_every, kBillion), "steps between lines of metrics",
       kMayChange},
      {"eval_every", number(trainer.eval_every, kNatural),
       "steps between evaluations; there is one at the end, with 0 only that", kMayChange},
      {"metrics", list(trainer.metrics, of_length("a metric's name", 100)),
       str("figures of evaluations beside the loss: ", join(metric_registry().names()),
           "; []: accuracy for classes"),
       kMayChange},
      {"patience", number_or_null(trainer.patience, kBillion),
       "evaluations in a row in which checkpoint.best (none: the loss) does not get better, after "
       "which the run ends; null: it does not",
       kMayChange},
      {"freeze", list(trainer.freeze, of_length("a pattern for parameters' names", 1000)),
       "names of parameters that are not trained; patterns as in a shell (\"*.bias\")"},
  };
}

ConfigKeys checkpoint_keys(CheckpointOptions& checkpoint) {
  const KeyTraits short_form{.may_change = true, .is_short_form = true};
  return {
      {"save", one_of(checkpoint.save, {"state", "none"}),
       "what a run leaves: all that it needs to go on, or nothing", short_form},
      {"every", number(checkpoint.every, kNatural),
       "steps between checkpoints; there is one at the end, with 0 only that", kMayChange},
      {"keep", number(checkpoint.keep, from_to<std::int64_t>(1, 1'000'000)),
       "how many of the newest remain", kMayChange},
      {"async", flag(checkpoint.async), "write beside the training", kMayChange},
      {"on_error", one_of(checkpoint.on_error, {"stop", "warn"}),
       "where one can't be saved, stop the run or go on with a warning", kMayChange},
      {"best", text(checkpoint.best, of_length("none or a metric's name,", 100)),
       "the figure of the validation set by which the best one is kept, too", kMayChange},
  };
}

}  // namespace
}  // namespace keys

std::vector<keys::Section> config_table(Config& config) {
  using namespace keys;
  return {{"model", model_keys(config.model, config.init)},
          {"data", data_keys(config.data, config.data_use)},
          {"loss", loss_keys(config.loss)},
          optimizer_section(config.zero.optimizer),
          schedule_section(config.schedule),
          {"parallel", parallel_keys(config.launch, config.zero)},
          {"trainer", trainer_keys(config.trainer, config.zero, config.launch)},
          {"checkpoint", checkpoint_keys(config.checkpoint)}};
}

}  // namespace lockstep
