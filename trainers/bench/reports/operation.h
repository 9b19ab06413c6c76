#pragma once

#include <cstdint>
#include <string>

namespace lockstep::bench {

/// What a collective does with float32 buffers of S bytes on N replicas. all_reduce: each replica
/// gives S and gets the sum. reduce_scatter: each gives S and gets its own N-th of the sum.
/// all_gather: each gives S/N and gets the parts of all.
enum class Operation { all_reduce, reduce_scatter, all_gather };

[[nodiscard]] const char* name_of(Operation operation);

/// ValueError for an unknown name.
[[nodiscard]] Operation parse_operation(const std::string& name);

/// The smallest possible size of at least `bytes`: a whole number of floats. Operations that cut
/// the buffer need a whole number of floats for each replica.
[[nodiscard]] std::int64_t usable_size(Operation operation, std::int64_t replicas,
                                       std::int64_t bytes);

/// Bytes that cross between replicas in the best algorithm, as NCCL's tests count them: all_reduce
/// 2 (N-1)/N S, the others (N-1)/N S. Divided by a call's time this is the bus bandwidth, which
/// compares sizes, operations and numbers of replicas.
[[nodiscard]] double bus_bytes(Operation operation, std::int64_t replicas, std::int64_t bytes);

/// Bytes that memory must at least read and write for all replicas together, if buffers are shared
/// and none is in a cache: all_reduce N S read + N S written; reduce_scatter N S + S; all_gather
/// (N-1) S + (N-1) S.
[[nodiscard]] double moved_bytes(Operation operation, std::int64_t replicas, std::int64_t bytes);

}  // namespace lockstep::bench
