#pragma once

#include <functional>

#include "framework/data/data.h"
#include "framework/launch/launch.h"
#include "trainers/commands/flags.h"
#include "trainers/config/config.h"
#include "trainers/run/trainer.h"

namespace lockstep {

/// How a run on several hosts goes about its folder: host 0 claims it, the others get its path.
/// `claim` makes options.output the run's own and `begin` follows on each host. Config, data, the
/// folder asked for and the checkpoint must be the same on all hosts, but not where a host has the
/// data (keys::KeyTraits::is_place). Of data that are slow to read (Dataset::is_slow()) about 1000
/// samples are compared. ValueError if the run saves checkpoints and the folder is not shared by
/// all.
[[nodiscard]] HostOptions host_options(const Flags& flags, const Config& config,
                                       const DataSets& data, RunOptions& options,
                                       const std::function<void()>& claim,
                                       const std::function<void()>& begin);

}  // namespace lockstep
