#pragma once

#include <memory>

#include "framework/comm/communicator.h"
#include "framework/comm/store.h"

namespace lockstep::comm {

/// Connects replica `rank` of `size` to the others over Gloo's TCP transport; all of them call this
/// with the same store. Throws Timeout if one does not come, CommError if the address cannot be
/// used.
///
/// What a verb sends, with N replicas and a buffer of S bytes (all_gather: S in the output), and
/// how many times it waits for the others:
///
///   | verb                     | bytes sent by each | rounds |
///   |--------------------------|--------------------|--------|
///   | all_reduce, S <= 16 KiB  | (N-1) S            | 1      |
///   | all_reduce, larger       | 2 (N-1)/N S        | 2      |
///   | reduce_scatter           | (N-1)/N S          | 1      |
///   | all_gather               | (N-1)/N S          | 1      |
///   | all_to_all, permute      | what is sent       | 1      |
///   | broadcast                | (N-1) S by root    | 1      |
///   | barrier                  | N-1                | 1      |
[[nodiscard]] std::shared_ptr<Communicator> connect_gloo(std::shared_ptr<Store> store, int rank,
                                                         int size,
                                                         const ConnectOptions& options = {});

}  // namespace lockstep::comm
