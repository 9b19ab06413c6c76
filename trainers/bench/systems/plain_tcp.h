#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainers/bench/systems/link.h"

namespace lockstep::bench {

/// TCP with nothing on top, for one process on each of several hosts: what their network can do.
/// Each host sends to the next one, while it receives from the one before, as many bytes as a host
/// must send in the operation. Listens at `port` of addresses[host] (IPv4). Throws CommError.
[[nodiscard]] std::unique_ptr<ReplicaTask> make_plain_tcp(const std::vector<std::string>& addresses,
                                                          std::size_t host, std::uint16_t port);

}  // namespace lockstep::bench
