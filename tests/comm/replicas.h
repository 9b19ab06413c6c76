#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/comm/gloo/gloo_communicator.h"
#include "framework/comm/network/tcp_communicator.h"
#include "framework/comm/shared/host_memory.h"

namespace lockstep::testing {

using ReplicaFunction = std::function<void(comm::Communicator&)>;

/// A transport of replicas. `hosts`: shared memory on each of several hosts, and TCP between them.
enum class Backend { gloo, tcp, shared, hosts };
[[nodiscard]] const char* name_of(Backend backend);

/// Returns the host of each of `replicas`, for tests that name none.
[[nodiscard]] std::vector<int> usual_hosts(int replicas);

/// Returns the options that replicas over TCP share, on the loopback.
[[nodiscard]] comm::NetworkOptions network();

[[nodiscard]] std::shared_ptr<comm::HostMemory> make_host_memory(int members);

/// Runs `body` in `replicas` threads, each with its communicator. When one throws, the others are
/// aborted, and the call throws that first error.
void in_threads(Backend backend, int replicas, const ReplicaFunction& body,
                const comm::ConnectOptions& options = {});

/// Does the same with replica r on host host_of[r].
void in_threads_on(const std::vector<int>& host_of, const ReplicaFunction& body,
                   const comm::ConnectOptions& options = {});

/// Does the same with one forked process a replica. A replica that throws makes the call throw a
/// std::runtime_error with its text.
void in_processes(Backend backend, int replicas, const ReplicaFunction& body,
                  const comm::ConnectOptions& options = {});
void in_processes_on(const std::vector<int>& host_of, const ReplicaFunction& body,
                     const comm::ConnectOptions& options = {});

}  // namespace lockstep::testing
