#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/keys/choice.h"
#include "framework/keys/key_table.h"
#include "framework/launch/launch.h"
#include "framework/optim/schedule.h"
#include "framework/training/zero_options.h"
#include "trainers/config/sections.h"

namespace lockstep {

inline constexpr std::int64_t kMostReplicas = 16'384;
inline constexpr std::int64_t kMostReplicasOfHost = 1024;  ///< more are taken for a typing error

/// A job for `train`; config_table() says what each value means. Options that don't belong to the
/// chosen model, data set, optimizer or schedule have their defaults. What launch() and ZeroTrainer
/// take is in their own structs, in whatever section a key stands.
struct Config {
  keys::Picked model{"linear"};  ///< of model_registry()
  InitOptions init;
  keys::Picked data{"pmean_example"};  ///< of data_registry()
  DataUse data_use;
  keys::Picked loss{"auto"};  ///< of loss_registry()
  ScheduleOptions schedule;
  LaunchOptions launch;
  /// `seed` is for everything random; a draw from LibTorch's own generator is an error. The axis is
  /// that of `launch`: see zero_options() in config_options.h.
  ZeroOptions zero{.randomness = Randomness::strict, .may_repeat_samples = true};
  TrainerOptions trainer;
  CheckpointOptions checkpoint;
  TelemetryOptions telemetry;
  keys::KeyPlaces places;  ///< of what was read; not compared

  friend bool operator==(const Config& a, const Config& b);
};

/// Every key of a config, once, with its variable in `config`. A new one stands in sections.h;
/// models, data sets and other choices bring keys of their own.
[[nodiscard]] std::vector<keys::Section> config_table(Config& config);

/// The text of the config in `file`, which may be a FIFO or "-", stdin. DataError if it cannot be
/// read or is longer than 256 KiB.
[[nodiscard]] std::string read_config(const std::filesystem::path& file);

/// The file's name in messages.
[[nodiscard]] std::string config_name(const std::filesystem::path& file);

/// Reads the config in `file` by these two; `overrides` win over it. ValueError with all that is
/// wrong in it, as read_keys() throws it.
[[nodiscard]] Config load_config(const std::filesystem::path& file,
                                 const std::vector<keys::Override>& overrides = {});

/// The same for a file's `text`, which messages call `name`.
[[nodiscard]] Config parse_config(const std::string& text, const std::string& name,
                                  const std::vector<keys::Override>& overrides = {});

/// Each key's value as YAML, by "section.key", including keys that do not apply.
[[nodiscard]] std::map<std::string, std::string> values_of(Config config);

/// The keys ("section.key") whose values may differ where a run goes on from a checkpoint.
[[nodiscard]] std::set<std::string> changeable_keys();

/// The keys ("section.key") whose values are paths, which hosts of one job may have different.
[[nodiscard]] std::set<std::string> place_keys(Config config);

/// The resolved config: every key that applies, with its value. parse_config gives an equal Config.
[[nodiscard]] std::string to_yaml(Config config);

/// For people: the purpose of each key, its possible values and its default. With a name: only the
/// keys of this section, or those that a config with this model, data set, loss, optimizer or
/// schedule may have there, or else the keys of this name ("lr", "optimizer.lr") in all sections.
/// ValueError, with the nearest name, for an unknown one.
[[nodiscard]] std::string config_help(const std::optional<std::string>& name = std::nullopt);

}  // namespace lockstep
