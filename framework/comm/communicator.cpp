#include "framework/comm/communicator.h"

#include <cstring>
#include <new>
#include <numeric>
#include <ostream>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/memory.h"
#include "framework/base/pages.h"
#include "framework/base/text.h"
#include "framework/reduce/reduce.h"

namespace lockstep::comm {
namespace {

// "3 bytes"
struct InBytes {
  std::size_t count;
  friend std::ostream& operator<<(std::ostream& out, InBytes bytes) {
    return out << counted(static_cast<std::int64_t>(bytes.count), "byte");
  }
};

void check_elements(const char* verb, std::size_t bytes, const Verb& call) {
  require(bytes % size_of(call.type) == 0, verb, ": ", InBytes{bytes},
          ", which is no whole number of ", name_of(call.type));
  const std::string problem = reduce::why_not(call.type, call.op);
  require(problem.empty(), verb, ": ", problem);
}

void check_sizes(const char* what, std::span<const std::size_t> sizes, int replicas,
                 std::size_t buffer) {
  require(sizes.size() == static_cast<std::size_t>(replicas), "all_to_all: ", sizes.size(), " ",
          what, " for ", replicas, " replicas");
  const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  require(total == buffer, "all_to_all: ", what, " add up to ", InBytes{total}, ", the buffer has ",
          buffer);
}

void check_all_to_all(const Verb& verb, int rank, int size) {
  check_sizes("send sizes", verb.send_sizes, size, verb.input.size());
  check_sizes("receive sizes", verb.recv_sizes, size, verb.output.size());
  const std::size_t sent = verb.send_sizes[static_cast<std::size_t>(rank)];
  const std::size_t received = verb.recv_sizes[static_cast<std::size_t>(rank)];
  require(sent == received, "all_to_all: replica ", rank, " sends itself ", InBytes{sent},
          " and expects ", received);
}

}  // namespace

void check_memory_left(std::size_t bytes, std::size_t available) {
  if (bytes <= available) return;
  throw CommError(str("no symmetric buffer: it takes ", bytes, " bytes, and the host has ",
                      available, " bytes of memory left", memory_limit_text(),
                      ". Fewer replicas a host or smaller buffers need less"));
}

SymmetricBuffer private_buffer(std::size_t bytes) {
  check_memory_left(bytes, available_memory());
  constexpr std::align_val_t kAlignment{kPage};
  const auto release = [=](std::byte* data) { ::operator delete(data, kAlignment); };
  const std::shared_ptr<std::byte> memory(
      static_cast<std::byte*>(::operator new(bytes, kAlignment)), release);
  std::memset(memory.get(), 0, bytes);
  return {.own = {memory.get(), bytes}, .memory = memory};
}

void Verb::check(int rank, int size) const {
  const auto count = static_cast<std::size_t>(size);
  switch (kind) {
    case Kind::all_reduce:
      require(input.size() == output.size(), "all_reduce: input has ", InBytes{input.size()},
              ", output ", output.size(), "; they must agree");
      return check_elements("all_reduce", input.size(), *this);
    case Kind::reduce_scatter:
      require(input.size() == output.size() * count, "reduce_scatter: input has ",
              InBytes{input.size()}, "; ", size, " slices of ", output.size(), " are needed");
      return check_elements("reduce_scatter", output.size(), *this);
    case Kind::all_gather:
      return require(output.size() == input.size() * count, "all_gather: output has ",
                     InBytes{output.size()}, "; ", size, " times ", input.size(), " are needed");
    case Kind::all_to_all:
      return check_all_to_all(*this, rank, size);
    case Kind::broadcast:
      return require(root >= 0 && root < size, "broadcast: root ", root, " is not in a group of ",
                     size);
    case Kind::barrier:
      return;
    case Kind::allocate:
      constexpr std::size_t kMost = std::size_t{1} << 46;  // more than machines have addresses for
      return require(bytes <= kMost, "allocate: ", InBytes{bytes}, "; no more than ", kMost,
                     " are possible");
  }
}

void run_alone(const Verb& verb) {
  if (verb.kind != Verb::Kind::allocate) return copy_bytes(verb.input, verb.output);
  *verb.buffer = private_buffer(verb.bytes);
  if (verb.copies == Copies::one) verb.buffer->holders = {{0}};
}

Communicator::Communicator(int rank, int size) : rank_(rank), size_(size) {
  require(size >= 1, "a group needs at least one replica, not ", size);
  require(rank >= 0 && rank < size, "rank ", rank, " is not in a group of ", size);
}

void Communicator::all_to_all(ConstBytes input, std::span<const std::size_t> send_sizes,
                              Bytes output, std::span<const std::size_t> recv_sizes) {
  call({.kind = Verb::Kind::all_to_all,
        .input = input,
        .output = output,
        .send_sizes = send_sizes,
        .recv_sizes = recv_sizes});
}

// Does an all_to_all whose other messages are empty.
void Communicator::permute(ConstBytes input, int destination, Bytes output, int source) {
  const auto check_replica = [&](const char* what, int replica) {
    require(replica == kNobody || (replica >= 0 && replica < size_), "permute: ", what, " ",
            replica, " is not in a group of ", size_);
  };
  check_replica("destination", destination);
  check_replica("source", source);
  require((destination == rank_) == (source == rank_), "permute: replica ", rank_,
          " is its own destination or source, but not both");
  require(source != rank_ || input.size() == output.size(), "permute: replica ", rank_,
          " sends itself ", InBytes{input.size()}, " and expects ", output.size());
  if (destination == kNobody) input = {};
  if (source == kNobody) output = {};
  std::vector<std::size_t> send_sizes(static_cast<std::size_t>(size_));
  std::vector<std::size_t> recv_sizes(send_sizes.size());
  if (destination != kNobody) send_sizes[static_cast<std::size_t>(destination)] = input.size();
  if (source != kNobody) recv_sizes[static_cast<std::size_t>(source)] = output.size();
  all_to_all(input, send_sizes, output, recv_sizes);
}

std::shared_ptr<Communicator> Communicator::subgroup(std::span<const int> members,
                                                     std::uint64_t channel) {
  std::vector<bool> seen(static_cast<std::size_t>(size_), false);
  int own_place = -1;
  for (std::size_t place = 0; place < members.size(); ++place) {
    const int member = members[place];
    require(member >= 0 && member < size_, "subgroup: member ", member, " is not in a group of ",
            size_);
    require(!seen[static_cast<std::size_t>(member)], "subgroup: member ", member, " stands twice");
    seen[static_cast<std::size_t>(member)] = true;
    if (member == rank_) own_place = static_cast<int>(place);
  }
  require(own_place >= 0, "subgroup: replica ", rank_, " is not among its members [", join(members),
          "]");
  return do_subgroup(members, own_place, channel);
}

}  // namespace lockstep::comm
