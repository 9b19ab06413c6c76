#pragma once

#include <cstdint>
#include <string>

#include "framework/base/cores.h"
#include "framework/data/data.h"
#include "trainers/config/config.h"
#include "trainers/run/evaluate.h"

namespace lockstep {

// What a run tells people who may not see why it says little, or goes badly; "" is nothing.

/// That keys which the config has written down are for longer runs than one of so many steps: what
/// they are about comes at its end alone.
[[nodiscard]] std::string late_text(const Config& config, std::int64_t steps);

/// How many of the model's parameters are trained, and with which weights a run begins that does
/// not go on: where the config freezes some or names a file.
[[nodiscard]] std::string parameters_text(const Config& config, const SampleType& sample,
                                          bool goes_on);

/// That targets of a table are far from 1 in size and stay as they are, where by the figures of
/// `set` their mean would predict better than the model.
[[nodiscard]] std::string scale_text(const Objective& objective, const DataSets& data,
                                     const std::string& set, const Figures& figures);

/// That others take the cores of math threads, which wait for one another: `time` is what this
/// process' threads had in `seconds`. Not that threads of its own take them, such as those that
/// make batches: then all together run as long as math threads could. Costs most where a model is
/// small: steps have many pieces of work, and each waits for its last thread.
[[nodiscard]] std::string busy_text(const CoreTime& time, double seconds,
                                    std::int64_t math_threads);

}  // namespace lockstep
