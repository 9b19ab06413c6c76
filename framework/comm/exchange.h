#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "framework/comm/bytes.h"
#include "framework/comm/communicator.h"
#include "framework/comm/deposit.h"

namespace lockstep {

/// How the processes of a group pass on what their replicas have, for the time of one verb.
class Exchange {
 public:
  using Pieces = std::vector<ConstBytes>;
  using Sizes = std::vector<std::size_t>;

  /// `outer` as perform() has it.
  Exchange(const GroupLayout& layout, Communicator* outer) : layout_(layout), outer_(outer) {}

  /// Sends each process its pieces and receives pieces of the sizes that `in` says. Those from this
  /// process itself are the ones that were to be sent, the others are in scratch memory.
  [[nodiscard]] std::vector<Pieces> operator()(std::vector<Pieces> out,
                                               const std::vector<Sizes>& in);

  /// Memory that is there as long as this.
  [[nodiscard]] Bytes scratch(std::size_t bytes);

 private:
  const GroupLayout& layout_;
  Communicator* outer_;
  std::vector<std::unique_ptr<std::byte[]>> scratch_;
};

}  // namespace lockstep
