#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace lockstep::engines {

/// The variables and flags of a process, and other facts that tell its place.
struct Surroundings {
  std::map<std::string, std::string> variables{};
  /// The given ones of --nnodes, --node-rank, --rendezvous and --secret-file. Each flag by itself
  /// wins over Lockstep's variable (LOCKSTEP_NNODES, LOCKSTEP_NODE_RANK, LOCKSTEP_RENDEZVOUS,
  /// LOCKSTEP_SECRET_FILE), and the variable over the engine.
  std::map<std::string, std::string> flags{};
  std::function<std::string()> host_name{};  ///< with its domain; only called for a job's pods
  std::int64_t pid = 0;
  bool has_terminal = false;  ///< true if stdin is a terminal
  /// The started program's name in messages: "train".
  std::string program{};
};

/// Returns the surroundings of this process. `pid` is its own or, if an engine's task has started
/// it, that of the task.
[[nodiscard]] Surroundings surroundings_of_process(std::int64_t pid, const std::string& program);

}  // namespace lockstep::engines
