#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/engines/surroundings.h"

namespace lockstep::engines {

/// The starter of this process: none that it knows; flags and variables of Lockstep's own; or a
/// cluster's engine.
enum class Engine { none, own, torchrun, mpi, slurm, kubernetes };

/// Returns the engine with a name that --engine takes: "none", "torchrun", "mpi", "slurm" or "k8s";
/// nothing for "auto", which looks for all. Throws ValueError for other names.
[[nodiscard]] std::optional<Engine> parse_engine(const std::string& name);

/// A variable or flag that was looked at.
struct ReadVariable {
  std::string name;
  std::optional<std::string> value;  ///< none: it is not set
  std::string meaning;               ///< what it tells
};

/// The place of this process in a job: its host among the others, the address where hosts meet, and
/// the engine that says so. Without an engine: one host alone.
struct Whereabouts {
  Engine engine = Engine::none;
  std::int64_t host = 0;
  std::int64_t hosts = 1;
  /// Each a "HOST:PORT", in the order in which host 0 tries to listen; none if hosts is 1.
  std::vector<std::string> rendezvous{};

  /// How long the hosts may take to meet: under Kubernetes pods' images have to come first.
  std::int64_t meet_timeout_s = 60;
  std::string unknown_name_hint{};  ///< for the error if host 0's name is not known, or ""
  std::string secret_file{};        ///< of the hosts' secret, as LOCKSTEP_SECRET_FILE says, or ""

  std::string job{};          ///< as the engine calls it, or ""
  std::string step{};         ///< of the job; ""
  std::int64_t restarts = 0;  ///< how often the engine has started the job again

  std::int64_t local_rank = 0;  ///< this task's number on its host
  std::int64_t local_tasks = 1;
  std::int64_t all_tasks = 0;         ///< of all hosts; 0 if the engine starts none, but pods
  std::vector<std::int64_t> tasks{};  ///< of each host; empty if that is not known
  /// Tells this host's tasks from the user's others, since jobs may have the same name; or "".
  std::string local_job{};
  std::string starter{};  ///< the program that starts tasks: "srun"
  /// The command that starts one task on each host: "srun --ntasks-per-node=1 -c CORES".
  std::string one_task_a_host{};
  std::string more_cores{};  ///< how a task gets more of its host's, for people

  std::vector<ReadVariable> read{};  ///< in the order of reading
  /// Why this host is alone although variables of an engine are set, in one line; else "", also
  /// where --nnodes 1 says so.
  std::string alone_because{};
  /// Why this process may not run at all, and what to write instead; else "".
  std::string refusal{};
};

/// Returns the place of this process. The innermost engine whose variables are complete tells it:
/// flags and LOCKSTEP_…, torchrun, MPI, a step of Slurm, pods of Kubernetes. `wanted` looks for one
/// engine alone; Engine::none for flags alone. Throws nothing: impossible values set `refusal`, and
/// so do missing variables of an engine, unless this is surely one host alone.
[[nodiscard]] Whereabouts find_whereabouts(const Surroundings& here,
                                           std::optional<Engine> wanted = std::nullopt);

/// Returns the engine as --engine takes it: "slurm".
[[nodiscard]] std::string name_of(Engine engine);

/// True if an engine has started this process. Flags or LOCKSTEP_…, by which a user numbers hosts,
/// are no engine.
[[nodiscard]] constexpr bool is_engine(Engine engine) {
  return engine != Engine::none && engine != Engine::own;
}

/// True if this process prints to an engine's log, though stdout may look like a terminal, as
/// mpirun makes it. Where somebody watches, as with srun --pty or kubectl run -it, stdin is one.
[[nodiscard]] bool is_logged_by_engine(const Surroundings& here);

/// Returns "host 1 of 2, by Slurm (job 18, step 0); they meet at node0:62592", for example.
[[nodiscard]] std::string text_of(const Whereabouts& where);

/// Returns a text that tells the job from a user's others, the same on all its hosts: "Slurm, job
/// 18, step 0, restart 1". torchrun's restarts are left out, since each agent counts its own. ""
/// where the engine does not tell the job.
[[nodiscard]] std::string job_of(const Whereabouts& where);

}  // namespace lockstep::engines
