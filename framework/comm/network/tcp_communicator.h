#pragma once

#include <memory>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/comm/network/link.h"
#include "framework/comm/store.h"
#include "framework/timeline/recorder.h"

namespace lockstep::comm {

/// The track that records transfers from other hosts.
struct TransferRecord {
  std::shared_ptr<timeline::Recorder::Track> track{};  ///< nullptr: nowhere
  std::vector<int> host_of{};                          ///< by replica
};

/// Connects replica `rank` of `size` to the others over TCP, on `network.address`; all of them have
/// the same store, secret and job. It waits for nobody: a connection to another replica is made
/// when a verb needs it first. If that replica has not called this, the verb throws Timeout after
/// options.connect_timeout. Later verbs throw Timeout when nothing has moved for options.timeout,
/// and ReplicaLost as soon as a replica that they need has ended. Throws CommError if the address
/// can't be used.
///
/// A peer without the secret gets no further than a greeting; the messages of verbs are neither
/// encrypted nor signed.
///
/// ScheduleChoice chooses the messages and rounds of verbs, by set_link_speed(). Each replica
/// publishes one key. It has a connection to each replica that its schedules name: with kLoopback's
/// speed and all-reduces of 1 KiB and 2 MiB so many (over links of long latency, where rounds cost
/// more than messages, N - 1):
///
///   | replicas              | 2 | 4 | 8 | 16 | 32 | 64 |
///   |-----------------------|---|---|---|----|----|----|
///   | connections of each   | 1 | 3 | 7 | 6  | 10 | 15 |
[[nodiscard]] std::shared_ptr<Communicator> connect_tcp(std::shared_ptr<Store> store, int rank,
                                                        int size, const NetworkOptions& network,
                                                        const ConnectOptions& options = {},
                                                        const TransferRecord& record = {});

}  // namespace lockstep::comm
