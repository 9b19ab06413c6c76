#pragma once

#include <cstdint>
#include <string>

namespace lockstep::bench {

/// What a collective does with float32 buffers of S bytes on N replicas. all_reduce: each gives S
/// and gets the sum of all. reduce_scatter: each gives S and gets its own N-th of the sum.
/// all_gather: each gives S/N and gets all of them.
enum class Operation { all_reduce, reduce_scatter, all_gather };

[[nodiscard]] const char* name_of(Operation operation);

/// ValueError if there is none of that name.
[[nodiscard]] Operation parse_operation(const std::string& name);

/// The smallest size from `bytes` on that the operation can have: a whole number of floats, for
/// those that cut the buffer into one part a replica a whole number in each.
[[nodiscard]] std::int64_t usable_size(Operation operation, std::int64_t replicas,
                                       std::int64_t bytes);

/// What crosses from replica to replica in the best of algorithms, as NCCL's tests count it: over a
/// call's time it is the bus bandwidth, which compares sizes, operations and numbers of replicas.
/// all_reduce 2 (N-1)/N S, the others (N-1)/N S.
[[nodiscard]] double bus_bytes(Operation operation, std::int64_t replicas, std::int64_t bytes);

/// What memory must read and write at the least, all replicas together, if buffers are shared and
/// all of them are in memory, none in a cache: all_reduce N S read + N S written; reduce_scatter N
/// S + S; all_gather (N-1) S + (N-1) S.
[[nodiscard]] double moved_bytes(Operation operation, std::int64_t replicas, std::int64_t bytes);

}  // namespace lockstep::bench
