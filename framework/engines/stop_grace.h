#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lockstep::engines {

/// How long an engine waits between SIGTERM, by which it ends a task, and SIGKILL.
struct StopGrace {
  double seconds = 0;
  std::string who{};     ///< "mpirun"
  std::string longer{};  ///< what gives more time, for people; "" where nothing is known to
};

/// Whether SIGKILL would cut off a save that takes so long; none: its length is not known.
[[nodiscard]] bool is_too_short(const StopGrace& grace, std::optional<double> save_s);

/// What a run says when it is to stop: how long its last save took (none: not known) beside the
/// time that it has and, where that is too short, what gives more.
[[nodiscard]] std::string grace_text(const StopGrace& grace, std::optional<double> save_s);

/// KillWait of a slurm.conf, the seconds between SIGTERM and SIGKILL. Where the file does not say,
/// or can't be read: 30, Slurm's own default.
[[nodiscard]] double kill_wait_in(const std::filesystem::path& slurm_conf);

}  // namespace lockstep::engines
