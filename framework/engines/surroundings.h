#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace lockstep::engines {

/// What a process knows of itself.
struct Surroundings {
  std::map<std::string, std::string> variables{};
  /// Of --nnodes, --node-rank, --rendezvous and --secret-file those that are given. Each wins by
  /// itself over the variable of Lockstep's (LOCKSTEP_NNODES, LOCKSTEP_NODE_RANK,
  /// LOCKSTEP_RENDEZVOUS, LOCKSTEP_SECRET_FILE), and this over what an engine says.
  std::map<std::string, std::string> flags{};
  std::function<std::string()> host_name{};  ///< with its domain; called for pods of a job alone
  std::int64_t pid = 0;
  bool has_terminal = false;  ///< whether stdin is one
  /// How messages call what was started: "train".
  std::string program{};
};

/// Of this process, which `pid` stands for: another's is given where it was started by the task of
/// an engine.
[[nodiscard]] Surroundings surroundings_of_process(std::int64_t pid, const std::string& program);

}  // namespace lockstep::engines
