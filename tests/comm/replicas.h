#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/comm/gloo_communicator.h"

namespace lockstep::testing {

using ReplicaFunction = std::function<void(Communicator&)>;

/// Runs `body` in `replicas` threads, each with its communicator over Gloo. When one throws, the
/// others are aborted, and the call throws that first error.
void in_threads(int replicas, const ReplicaFunction& body, const GlooOptions& options = {});

/// The same with one forked process a replica. A replica that throws makes the call throw a
/// std::runtime_error with its text.
void in_processes(int replicas, const ReplicaFunction& body, const GlooOptions& options = {});

}  // namespace lockstep::testing
