#include "framework/comm/communicator.h"

#include <numeric>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/comm/reduce.h"

namespace lockstep {
namespace {

void check(bool holds, const std::string& message) {
  if (!holds) throw ValueError(message);
}

void check_elements(const char* verb, std::size_t bytes, ElementType type, ReduceOp op) {
  check(bytes % size_of(type) == 0,
        str(verb, ": ", bytes, " bytes are no whole number of ", name_of(type)));
  check_reduction(verb, type, op);
}

void check_sizes(const char* what, std::span<const std::size_t> sizes, int replicas,
                 std::size_t buffer) {
  check(sizes.size() == static_cast<std::size_t>(replicas),
        str("all_to_all: ", sizes.size(), " ", what, " for ", replicas, " replicas"));
  const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  check(total == buffer,
        str("all_to_all: ", what, " add up to ", total, " bytes, the buffer has ", buffer));
}

}  // namespace

Communicator::Communicator(int rank, int size) : rank_(rank), size_(size) {
  check(size >= 1, str("a group needs at least one replica, not ", size));
  check(rank >= 0 && rank < size, str("rank ", rank, " is not in a group of ", size));
}

void Communicator::all_reduce(std::span<const std::byte> input, std::span<std::byte> output,
                              ElementType type, ReduceOp op) {
  check(input.size() == output.size(), str("all_reduce: input has ", input.size(),
                                           " bytes, output ", output.size(), "; they must agree"));
  check_elements("all_reduce", input.size(), type, op);
  do_all_reduce(input, output, type, op);
}

void Communicator::reduce_scatter(std::span<const std::byte> input, std::span<std::byte> output,
                                  ElementType type, ReduceOp op) {
  check(input.size() == output.size() * static_cast<std::size_t>(size_),
        str("reduce_scatter: input has ", input.size(), " bytes; ", size_, " slices of ",
            output.size(), " are needed"));
  check_elements("reduce_scatter", output.size(), type, op);
  do_reduce_scatter(input, output, type, op);
}

void Communicator::all_gather(std::span<const std::byte> input, std::span<std::byte> output) {
  check(output.size() == input.size() * static_cast<std::size_t>(size_),
        str("all_gather: output has ", output.size(), " bytes; ", size_, " times ", input.size(),
            " are needed"));
  do_all_gather(input, output);
}

void Communicator::all_to_all(std::span<const std::byte> input,
                              std::span<const std::size_t> send_sizes, std::span<std::byte> output,
                              std::span<const std::size_t> recv_sizes) {
  check_sizes("send sizes", send_sizes, size_, input.size());
  check_sizes("receive sizes", recv_sizes, size_, output.size());
  const auto own = static_cast<std::size_t>(rank_);
  check(send_sizes[own] == recv_sizes[own],
        str("all_to_all: replica ", rank_, " sends itself ", send_sizes[own], " bytes and expects ",
            recv_sizes[own]));
  do_all_to_all(input, send_sizes, output, recv_sizes);
}

void Communicator::permute(std::span<const std::byte> input, int destination,
                           std::span<std::byte> output, int source) {
  check(destination == kNobody || (destination >= 0 && destination < size_),
        str("permute: destination ", destination, " is not in a group of ", size_));
  check(source == kNobody || (source >= 0 && source < size_),
        str("permute: source ", source, " is not in a group of ", size_));
  check((destination == rank_) == (source == rank_),
        str("permute: replica ", rank_, " is its own destination or source, but not both"));
  check(source != rank_ || input.size() == output.size(),
        str("permute: replica ", rank_, " sends itself ", input.size(), " bytes and expects ",
            output.size()));
  do_permute(input, destination, output, source);
}

void Communicator::broadcast(std::span<std::byte> data, int root) {
  check(root >= 0 && root < size_, str("broadcast: root ", root, " is not in a group of ", size_));
  do_broadcast(data, root);
}

void Communicator::barrier() {
  do_barrier();
}

std::shared_ptr<SymmetricBuffer> Communicator::allocate(std::size_t bytes, Copies copies) {
  constexpr std::size_t kMost = std::size_t{1} << 46;  // more than machines have addresses for
  check(bytes <= kMost, str("allocate: ", bytes, " bytes; no more than ", kMost, " are possible"));
  return do_allocate(bytes, copies);
}

std::shared_ptr<Communicator> Communicator::subgroup(std::span<const int> members,
                                                     std::uint64_t channel) {
  std::vector<bool> seen(static_cast<std::size_t>(size_), false);
  int own_place = -1;
  for (std::size_t place = 0; place < members.size(); ++place) {
    const int member = members[place];
    check(member >= 0 && member < size_,
          str("subgroup: member ", member, " is not in a group of ", size_));
    check(!seen[static_cast<std::size_t>(member)],
          str("subgroup: member ", member, " stands twice"));
    seen[static_cast<std::size_t>(member)] = true;
    if (member == rank_) own_place = static_cast<int>(place);
  }
  check(own_place >= 0,
        str("subgroup: replica ", rank_, " is not among its members [", join(members), "]"));
  return do_subgroup(members, own_place, channel);
}

}  // namespace lockstep
