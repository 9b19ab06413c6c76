#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "framework/comm/common_buffers.h"
#include "framework/comm/communicator.h"
#include "framework/comm/element_type.h"

namespace lockstep {

/// What one replica brings to a verb of its group: the arguments of the Communicator's method.
struct Deposit {
  enum class Verb {
    all_reduce,
    reduce_scatter,
    all_gather,
    all_to_all,
    permute,
    broadcast,
    barrier,
    allocate
  };

  Verb verb;
  std::span<const std::byte> input = {};
  std::span<std::byte> output = {};  ///< broadcast: the data
  ElementType type = ElementType::uint8;
  ReduceOp op = ReduceOp::sum;
  std::span<const std::size_t> send_sizes = {};
  std::span<const std::size_t> recv_sizes = {};
  int destination = Communicator::kNobody;
  int source = Communicator::kNobody;  ///< broadcast: the root
  std::size_t bytes = 0;               ///< allocate: of the buffer …
  Copies copies = Copies::each;
  std::shared_ptr<SymmetricBuffer>* buffer = nullptr;  ///< … and where it goes
};

/// Which places of a group are in which process.
struct GroupLayout {
  std::size_t own = 0;                   ///< this process, among those that have places
  std::vector<std::vector<int>> places;  ///< of each process, ascending
};

/// Does a verb for all the replicas of a group that are in this process: `deposits` are theirs, in
/// the order of their places. `outer` joins it with the other processes of the layout and has them
/// in its order; nullptr where there are none. `common` are the buffers that the process shares
/// with others. Results have the bits of any other Communicator.
///
/// Of inputs to be reduced, processes send each other the sums of those which they have complete
/// subtrees of: see partial_sums.h.
void perform(const GroupLayout& layout, std::span<const Deposit* const> deposits,
             Communicator* outer, CommonBuffers& common);

}  // namespace lockstep
