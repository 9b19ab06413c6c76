#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "framework/base/non_copyable.h"
#include "trainers/bench/testing/child_program.h"
#include "trainers/bench/testing/temporary_folder.h"

namespace lockstep::testing {

/// Hosts on one switch: Linux namespaces that live only as long as this object and its process, so
/// that nothing of the machine's own network is touched. Each host has an address (10.77.0.1 and
/// so on), a name (host0 and so on, which all know), a home folder and a /dev/shm of its own; files
/// and processes are the machine's. For a process of one thread, as root.
class TestNetwork : private NonCopyable {
 public:
  struct Options {
    std::size_t hosts = 2;
    int rate_mbit = 0;     ///< of each host's cable, either way; 0: as fast as it goes
    int delay_ms = 0;      ///< from any host to any other, one way
    int loss_percent = 0;  ///< of the IP packets that a host would receive
  };

  /// The hosts reach each other once it is made. std::runtime_error, with the step that failed.
  explicit TestNetwork(const Options& options);
  /// Kills what still runs on the hosts.
  ~TestNetwork();

  [[nodiscard]] std::size_t size() const { return hosts_.size(); }
  [[nodiscard]] static std::string address(std::size_t host);
  [[nodiscard]] static std::string name(std::size_t host);
  /// Its $HOME; $XDG_CONFIG_HOME is .config in it.
  [[nodiscard]] std::filesystem::path home(std::size_t host) const;

  /// What to start instead of `program` (path and arguments) so that it runs on a host, in `folder`
  /// (empty: the host's home). The process that is started becomes the program.
  [[nodiscard]] std::vector<std::string> command(std::size_t host,
                                                 const std::vector<std::string>& program,
                                                 const std::filesystem::path& folder = {}) const;
  /// Moves the calling process onto a host: for the function of a ChildProgram.
  void enter(std::size_t host) const;

  /// Takes a host's cable out of the switch, and puts it back.
  void unplug(std::size_t host);
  void plug(std::size_t host);

  /// How many bytes a host has sent so far, with all headers.
  [[nodiscard]] std::int64_t sent_bytes(std::size_t host) const;
  /// How many packets to a host have been lost, with loss_percent.
  [[nodiscard]] std::size_t dropped(std::size_t host) const;
  /// What runs on a host.
  [[nodiscard]] std::vector<pid_t> processes(std::size_t host) const;
  /// What programs have left on the hosts, a line each: processes, sockets that listen, files in
  /// /dev/shm. To be asked once all programs have ended; waits a little for what is just ending.
  [[nodiscard]] std::vector<std::string> left_behind() const;

  /// The processes that keep the namespaces.
  [[nodiscard]] std::vector<pid_t> keepers() const;

 private:
  using Keeper = std::unique_ptr<ChildProgram>;

  [[nodiscard]] Keeper keep_namespaces(const std::string& name) const;
  [[nodiscard]] Keeper relay(std::chrono::milliseconds delay) const;
  void connect(const Options& options);
  void wait_for_cable(std::size_t host) const;
  [[nodiscard]] std::vector<std::string> traces(std::size_t host) const;

  TemporaryFolder folder_;
  Keeper switch_;
  std::vector<Keeper> hosts_;
  Keeper relay_;  // with a delay
};

/// Runs a function on a host, in a fork.
[[nodiscard]] std::unique_ptr<ChildProgram> run_on(const TestNetwork& network, std::size_t host,
                                                   const std::function<int()>& body);

}  // namespace lockstep::testing
