#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/programs.h"
#include "trainers/bench/hosts/host_network.h"

namespace lockstep::testing {

using Lines = std::vector<std::string>;

/// Hosts that lose packets, that can be unplugged, and that tell what is left on them.
class TestNetwork : public HostNetwork {
 public:
  struct Options {
    std::size_t hosts = 2;
    int rate_mbit = 0;     ///< as HostNetwork has it
    double delay_ms = 0;   ///< as HostNetwork has it
    int loss_percent = 0;  ///< of the IP packets that a host would receive
  };

  explicit TestNetwork(const Options& options);

  /// Moves the calling process onto a host: for the function of a ChildProgram.
  void enter(std::size_t host) const;

  /// Takes a host's cable out of the switch, and puts it back.
  void unplug(std::size_t host);
  void plug(std::size_t host);

  /// How many packets to a host have been lost, with loss_percent.
  [[nodiscard]] std::size_t dropped(std::size_t host) const;
  /// What programs have left on the hosts, a line each: processes, sockets that listen, files in
  /// /dev/shm. To be asked once all programs have ended; waits a little for what is just ending.
  [[nodiscard]] Lines left_behind() const;

 private:
  [[nodiscard]] pid_t keeper(std::size_t host) const { return keepers().at(host + 1); }
  [[nodiscard]] std::vector<std::string> traces(std::size_t host) const;
};

/// Runs a function on a host, in a fork.
[[nodiscard]] std::unique_ptr<ChildProgram> run_on(const TestNetwork& network, std::size_t host,
                                                   const std::function<int()>& body);

}  // namespace lockstep::testing
