#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/comm/gloo/gloo_communicator.h"
#include "framework/comm/shared/host_memory.h"

namespace lockstep::testing {

using ReplicaFunction = std::function<void(comm::Communicator&)>;

/// What connects replicas.
enum class Backend { gloo, shared };
[[nodiscard]] const char* name_of(Backend backend);
[[nodiscard]] std::shared_ptr<comm::Communicator> connect(
    Backend backend, const std::shared_ptr<comm::HostMemory>& memory,
    std::shared_ptr<comm::Store> store, int rank, int size, const comm::ConnectOptions& options);

[[nodiscard]] std::shared_ptr<comm::HostMemory> make_host_memory(int members);

/// Runs `body` in `replicas` threads, each with its communicator. When one throws, the others are
/// aborted, and the call throws that first error.
void in_threads(Backend backend, int replicas, const ReplicaFunction& body,
                const comm::ConnectOptions& options = {});

/// The same with one forked process a replica. A replica that throws makes the call throw a
/// std::runtime_error with its text.
void in_processes(Backend backend, int replicas, const ReplicaFunction& body,
                  const comm::ConnectOptions& options = {});

}  // namespace lockstep::testing
