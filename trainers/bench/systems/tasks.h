#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainers/bench/systems/link.h"

namespace lockstep::bench {

// The tasks that the worker serves, by a measurement's ways. Each says what its operation, its
// amount and its parts are; the driver has the names.

inline constexpr const char* kAxis = "replicas";  ///< over which the replicas of a worker talk

/// "symmetric", or tensors as anyone has them. The operation is all_reduce, reduce_scatter or
/// all_gather, its amount the bytes of the whole buffer.
[[nodiscard]] std::unique_ptr<ReplicaTask> make_collective(const std::string& way);

/// TCP with nothing on top: what the hosts' network can do. Each host sends to the next one, while
/// it receives from the one before, as many bytes as it must send in the operation. Listens at
/// `port` of addresses[host] (IPv4). CommError.
[[nodiscard]] std::unique_ptr<ReplicaTask> make_plain_tcp(const std::vector<std::string>& addresses,
                                                          std::size_t host, std::uint16_t port);

/// The dot product of two float32 arrays of so many bytes: "pmap", "serial" or "libtorch".
[[nodiscard]] std::unique_ptr<ReplicaTask> make_vdot(const std::string& way);

/// A vmap over so many lanes: "lanes", or "psum" within them.
[[nodiscard]] std::unique_ptr<ReplicaTask> make_vmap();

/// Training "alone", at a "stage 2", or at a "stage 2 augmented". The operation is a model's name,
/// its amount the samples of a replica's batch. Parts: data, forward, backward, communication,
/// update; and alone when each parameter's gradient is ready.
[[nodiscard]] std::unique_ptr<ReplicaTask> make_training(const std::string& way);
/// The number of values in each parameter of the model.
[[nodiscard]] std::vector<std::int64_t> parameters_of(const std::string& model);

/// Checkpoints at a "stage 2", in the folder LOCKSTEP_BENCH_FOLDER of the environment, of so many
/// parameters with Adam's two moments. "save" has the parts save, pause, load (seconds),
/// save_memory, load_memory (peaks in bytes, beyond what was there); "reload" load, load_memory,
/// held and predicted. "limits" are of the same bytes: write, read, copy, checksum.
[[nodiscard]] std::unique_ptr<ReplicaTask> make_checkpoint(const std::string& way);

/// shard_map over 2 replicas as threads, which return so many bytes with the spec P(), alike and
/// each its own: "shard_map" checks that they are alike, "unchecked" does not.
[[nodiscard]] std::unique_ptr<ReplicaTask> make_replicated(const std::string& way);

/// A "span" that a replica records, or the "clock", read twice.
[[nodiscard]] std::unique_ptr<ReplicaTask> make_recorder(const std::string& way);
/// A product of two matrices of 2048 x 2048 "float32" or "bfloat16" values, by all cores.
[[nodiscard]] std::unique_ptr<ReplicaTask> make_peak(const std::string& way);

}  // namespace lockstep::bench
