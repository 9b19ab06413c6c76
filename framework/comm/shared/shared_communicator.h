#pragma once

#include <memory>

#include "framework/base/errors.h"
#include "framework/comm/communicator.h"
#include "framework/comm/shared/host_memory.h"
#include "framework/comm/store.h"

namespace lockstep::comm {

/// The ReplicaLost for a replica whose process has ended: it will write nothing more.
class ProcessEnded final : public ReplicaLost {
 public:
  using ReplicaLost::ReplicaLost;
};

/// Connects replica `rank` of `size` on this host, each a thread or a process, to the others
/// through memory that they share; all of them call this with the same memory and store. Throws
/// Timeout if one does not come. Results have the bits of any other Communicator's.
///
/// Messages of up to HostMemory::kSmallBytes a replica take one round of flags and, while all
/// replicas are running, no system call. Longer ones pass through chunks that stay in the caches.
/// Symmetric buffers (Communicator::allocate) are read and written in place. If a replica's process
/// dies, replicas that wait for it throw ReplicaLost within 20 ms on an idle machine. The ledger
/// counts the bytes that a replica writes for others.
[[nodiscard]] std::shared_ptr<Communicator> connect_shared(std::shared_ptr<HostMemory> memory,
                                                           std::shared_ptr<Store> store, int rank,
                                                           int size,
                                                           const ConnectOptions& options = {});

}  // namespace lockstep::comm
