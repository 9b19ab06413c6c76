#pragma once

#include <memory>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/comm/network/link.h"
#include "framework/comm/store.h"
#include "framework/timeline/recorder.h"

namespace lockstep::comm {

/// Where what comes from other hosts is recorded.
struct TransferRecord {
  std::shared_ptr<timeline::Recorder::Track> track{};  ///< nullptr: nowhere
  std::vector<int> host_of{};                          ///< by replica
};

/// Connects replica `rank` of `size` to the others over TCP, on `network.address`; all of them have
/// the same store, secret and job. It waits for nobody: a connection to another replica is made
/// when a verb needs it first. A replica that has not called this is a Timeout of that verb, after
/// options.connect_timeout. Later verbs end with a Timeout when nothing has moved for
/// options.timeout, and with ReplicaLost as soon as a replica that they need has ended. Throws
/// CommError if the address can't be used.
///
/// Only who knows the secret gets further than a greeting; what verbs send is neither encrypted nor
/// signed.
///
/// ScheduleChoice says what verbs send and in how many rounds, by set_link_speed(). Each replica
/// publishes one key. It has a connection to each other one that schedules send it to, with
/// kLoopback's speed and all-reduces of 1 KiB and 2 MiB so many (over links of long latency, where
/// rounds cost more than messages, N - 1):
///
///   | replicas              | 2 | 4 | 8 | 16 | 32 | 64 |
///   |-----------------------|---|---|---|----|----|----|
///   | connections of each   | 1 | 3 | 7 | 6  | 10 | 15 |
[[nodiscard]] std::shared_ptr<Communicator> connect_tcp(std::shared_ptr<Store> store, int rank,
                                                        int size, const NetworkOptions& network,
                                                        const ConnectOptions& options = {},
                                                        const TransferRecord& record = {});

}  // namespace lockstep::comm
