#include "trainers/bench/hosts.h"

#include <filesystem>
#include <stdexcept>
#include <string>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/comm/network/secret.h"
#include "trainers/bench/systems/own.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;
using testing::HostNetwork;
using Words = std::vector<std::string>;

// Programs of one system, one for each host.
std::vector<Program> one_a_host(const Program& program, std::size_t hosts) {
  static int port = 29400;  // of host 0, another one for each system: all run at the same time
  ++port;
  std::vector<Program> programs(hosts, program);
  for (std::size_t host = 0; host < hosts; ++host) {
    Words& words = programs[host].arguments;
    words.insert(words.end(), {str(host), str(port)});
    for (std::size_t each = 0; each < hosts; ++each) words.push_back(HostNetwork::address(each));
  }
  return programs;
}

}  // namespace

Hosts::Hosts(const NetworkFacts& network) : facts_(network) {
  if (facts_.hosts == 1) return;
  try {
    network_ = std::make_unique<HostNetwork>(
        HostNetwork::Options{.hosts = static_cast<std::size_t>(facts_.hosts),
                             .rate_mbit = static_cast<int>(facts_.rate_mbit),
                             .delay_ms = static_cast<int>(facts_.delay_ms)});
  } catch (const std::runtime_error& error) {
    throw CommError(str("--hosts: ", error.what()));
  }
}

std::vector<System> Hosts::spread(std::vector<System> systems) const {
  if (!network_) return systems;
  for (System& system : systems) {
    system.programs = [this, system](std::int64_t replicas, const fs::path& folder) {
      const std::size_t hosts = network_->size();
      std::vector<Program> programs = system.programs(replicas, folder);
      if (programs.size() == 1) programs = one_a_host(programs[0], hosts);
      (void)comm::Secret::read_or_make(folder / kSecret);
      for (std::size_t i = 0; i < programs.size(); ++i) {
        Words& words = programs[i].arguments;
        if (words[0] == kThisBinary) words[0] = fs::read_symlink(kThisBinary);
        words = network_->command(i * hosts / programs.size(), words, fs::current_path());
        if (!system.facts.own) programs[i].environment["GLOO_SOCKET_IFNAME"] = "eth0";
      }
      return programs;
    };
  }
  return systems;
}

std::function<std::int64_t()> Hosts::sent_bytes() const {
  if (!network_) return nullptr;
  return [this] { return network_->sent_bytes(0); };
}

}  // namespace lockstep::bench
