#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/data/data.h"
#include "framework/optim/schedule.h"
#include "framework/replicas/launch.h"
#include "framework/training/zero_options.h"
#include "models/model_options.h"
#include "framework/keys/key_table.h"

namespace lockstep {

/// The weights with which a run begins.
struct InitOptions {
  std::optional<std::string> from;  ///< a file, as Weights reads it; none: the model's own weights
  bool strict = true;               ///< the file has all of the model's names and no others
};

/// The type of numbers in forward and backward.
enum class Precision { fp32, bf16 };

/// What only the trainer needs of a config's `trainer` section.
struct TrainerOptions {
  std::optional<std::int64_t> epochs = 1;  ///< either these …
  std::optional<std::int64_t> steps;       ///< … or these: exactly one has a value
  Precision precision = Precision::fp32;
  std::int64_t check_every = 0;
  std::int64_t log_every = 20;
  std::int64_t eval_every = 0;
  std::vector<std::string> freeze;  ///< patterns for parameters that are not trained
};

/// What `train` saves, and what a failure of that means.
struct CheckpointOptions {
  enum class Save { state, none };
  enum class OnError { stop, warn };
  Save save = Save::state;
  std::int64_t every = 0;  ///< steps between checkpoints; 0: only the final one
  std::int64_t keep = 3;
  bool async = true;
  OnError on_error = OnError::stop;
  std::string best = "none";  ///< the evaluation's figure by which one is the best
};

/// A job for `train`; config_table() says what each value means. Options that don't belong to the
/// chosen model, data set, optimizer or schedule have their defaults. What launch() and ZeroTrainer
/// take is in their own structs, in whatever section a key stands.
struct Config {
  ModelOptions model;
  InitOptions init;
  DataOptions data;
  std::int64_t batch_size = 64;
  bool shuffle = true;
  ScheduleOptions schedule;
  LaunchOptions launch;
  /// `seed` is for everything random; a draw from LibTorch's own generator is an error. The axis is
  /// that of `launch`: see zero_options() in config_options.h.
  ZeroOptions zero{.randomness = Randomness::strict};
  TrainerOptions trainer;
  CheckpointOptions checkpoint;
  keys::KeyPlaces places;  ///< of what was read; not compared

  friend bool operator==(const Config& a, const Config& b);
};

/// Every key of a config, once, with its variable in `config`. A new key needs a variable in one of
/// these structs and a line in this table.
[[nodiscard]] std::vector<keys::Section> config_table(Config& config);

/// Reads the config in `file`; `overrides` win over it. DataError if the file cannot be read or is
/// longer than 256 KiB. ValueError with all that is wrong in it, as read_keys() throws it.
[[nodiscard]] Config load_config(const std::filesystem::path& file,
                                 const std::vector<keys::Override>& overrides = {});

/// The same for a file's `text`, which messages call `name`.
[[nodiscard]] Config parse_config(const std::string& text, const std::string& name,
                                  const std::vector<keys::Override>& overrides = {});

/// Each key's value as YAML, by "section.key", including keys that do not apply.
[[nodiscard]] std::map<std::string, std::string> values_of(Config config);

/// The keys ("section.key") whose values may differ where a run goes on from a checkpoint.
[[nodiscard]] std::set<std::string> changeable_keys();

/// The resolved config: every key that applies, with its value. parse_config gives an equal Config.
[[nodiscard]] std::string to_yaml(Config config);

/// For people: the purpose of each key, its possible values and its default.
[[nodiscard]] std::string config_help();

}  // namespace lockstep
