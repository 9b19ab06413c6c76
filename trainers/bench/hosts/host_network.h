#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "framework/base/non_copyable.h"
#include "trainers/bench/hosts/child_program.h"

namespace lockstep::testing {

/// A control group whose processes together may use so many cores, which is gone with the object.
class CoreShare : private NonCopyable {
 public:
  /// std::runtime_error if it cannot be made.
  CoreShare(const std::string& name, double cores);
  ~CoreShare();
  /// The command that runs `words` in the group.
  [[nodiscard]] std::vector<std::string> command(const std::vector<std::string>& words) const;

 private:
  std::filesystem::path folder_;
};

/// Hosts on one switch: Linux namespaces that live only as long as this object and its process, so
/// that nothing of the machine's own network is touched. Each host has an address (10.77.0.1 and
/// so on), a name (host0 and so on, which all know), a home folder and a /dev/shm of its own; files
/// and processes are the machine's. For a process of one thread, as root.
class HostNetwork : private NonCopyable {
 public:
  struct Options {
    std::size_t hosts = 2;
    int rate_mbit = 0;    ///< of each host's cable, either way; 0: as fast as it goes
    double cores = 0;     ///< that each host may use; 0: all, as on one machine
    double delay_ms = 0;  ///< from any host to any other, one way
  };

  /// The hosts reach each other once it is made. std::runtime_error, with the step that failed.
  explicit HostNetwork(const Options& options);
  /// Kills what still runs on the hosts.
  ~HostNetwork();

  [[nodiscard]] std::size_t size() const { return hosts_.size(); }
  [[nodiscard]] static std::string address(std::size_t host);
  [[nodiscard]] static std::string name(std::size_t host);
  /// Its $HOME; $XDG_CONFIG_HOME is .config in it.
  [[nodiscard]] std::filesystem::path home(std::size_t host) const;

  /// What to start instead of `program` (path and arguments) so that it runs on a host, in `folder`
  /// (empty: the host's home). The process that is started becomes the program. Of no program it is
  /// what stands before one.
  [[nodiscard]] std::vector<std::string> command(std::size_t host,
                                                 const std::vector<std::string>& program,
                                                 const std::filesystem::path& folder = {}) const;
  /// A file that has the number of bytes that a host has sent so far, with all headers.
  [[nodiscard]] std::string sent_bytes(std::size_t host) const;
  /// What runs on a host.
  [[nodiscard]] std::vector<pid_t> processes(std::size_t host) const;
  /// The processes that keep the namespaces: of the switch, of each host, of a delay.
  [[nodiscard]] std::vector<pid_t> keepers() const;

 protected:
  /// Enters a namespace of a keeper, by its name in /proc/PID/ns.
  static void enter_namespace(pid_t keeper, const char* kind);
  /// Runs commands of a shell where a keeper is, and returns what they print.
  static std::string run_script(pid_t keeper, const std::string& script);
  void wait_for_cable(std::size_t host) const;

 private:
  using Keeper = std::unique_ptr<ChildProgram>;

  [[nodiscard]] Keeper keep_namespaces(const std::string& name) const;
  [[nodiscard]] Keeper relay(std::chrono::nanoseconds delay) const;
  void connect(const Options& options);

  std::vector<std::unique_ptr<CoreShare>> shares_;  // by host, if cores are limited; they go last
  std::filesystem::path folder_;                    // that only this user can open
  Keeper switch_;
  std::vector<Keeper> hosts_;
  Keeper relay_;  // with a delay
};

}  // namespace lockstep::testing
