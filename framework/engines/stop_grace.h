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

/// What comes between SIGTERM and a run's end.
struct StopWork {
  double step_s = 0;               ///< of a step, which may just have begun
  std::optional<double> save_s{};  ///< of a save; none: not known
};

/// Whether SIGKILL would cut off a save after such a step.
[[nodiscard]] bool is_too_short(const StopGrace& grace, const StopWork& work);

/// What a run says when it is to stop: how long its last save and step took beside the time that
/// it has and, where that is too short, what gives more.
[[nodiscard]] std::string grace_text(const StopGrace& grace, const StopWork& work);

/// KillWait of a slurm.conf, the seconds between SIGTERM and SIGKILL. Where the file does not say,
/// or can't be read: 30, Slurm's own default.
[[nodiscard]] double kill_wait_in(const std::filesystem::path& slurm_conf);

}  // namespace lockstep::engines
