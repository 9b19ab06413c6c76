#include "framework/comm/gloo/gloo_communicator.h"

#include <array>
#include <utility>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/shard.h"
#include "framework/base/text.h"
#include "framework/reduce/reduce.h"

namespace lockstep {
namespace {

// Up to here every replica sends its whole buffer to every other and all reduce for themselves:
// more bytes, one round.
constexpr std::size_t kOneRoundBytes = 16 * 1024;

// Memory that grows and is not cleared.
class Scratch {
 public:
  Bytes of(std::size_t bytes) {
    if (bytes > capacity_) {
      memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      capacity_ = bytes;
    }
    return {memory_.get(), bytes};
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;
};

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(std::shared_ptr<GlooLink> link, std::vector<int> members, int rank,
                   std::uint64_t channel)
      : Communicator(rank, static_cast<int>(members.size())),
        link_(std::move(link)),
        members_(std::move(members)),
        key_(channel) {
    for (const int member : members_) key_ = key_.fold(static_cast<std::uint64_t>(member));
  }

  void run(const Verb& verb) override {
    switch (verb.kind) {
      case Verb::Kind::all_reduce:
        return do_all_reduce(verb.input, verb.output, verb.type, verb.op);
      case Verb::Kind::reduce_scatter:
        return do_reduce_scatter(verb.input, verb.output, verb.type, verb.op);
      case Verb::Kind::all_gather:
        return do_all_gather(verb.input, verb.output);
      case Verb::Kind::all_to_all:
        return do_all_to_all(verb.input, verb.send_sizes, verb.output, verb.recv_sizes);
      case Verb::Kind::permute:
        return do_permute(verb.input, verb.destination, verb.output, verb.source);
      case Verb::Kind::broadcast:
        return do_broadcast(verb.output, verb.source);
      case Verb::Kind::barrier:
        return do_barrier();
      case Verb::Kind::allocate:
        *verb.buffer = do_allocate(verb.bytes, verb.copies);
        return;
    }
  }

  void abort(const std::string& reason) noexcept override { link_->abort(reason); }
  void interrupt(const std::exception_ptr& error) noexcept override {
    link_->interrupt(user_, error);
  }
  bool is_network() const noexcept override { return true; }
  const Ledger& ledger() const noexcept override { return link_->ledger(); }

 private:
  struct Slice {
    std::size_t offset;
    std::size_t size;
  };

  // The part of a buffer of `bytes` that replica `place` reduces: whole elements, as even as can
  // be.
  Slice slice_of(std::size_t bytes, std::size_t element, int place) const {
    const Shard part = shard(static_cast<std::int64_t>(bytes / element), size(), place);
    return {static_cast<std::size_t>(part.offset) * element,
            static_cast<std::size_t>(part.size) * element};
  }

  // The others of the group, starting with the next: so that not all send to the same one at once.
  template <typename Visit>
  void for_each_peer(const Visit& visit) const {
    for (int step = 1; step < size(); ++step) visit((rank() + step) % size());
  }

  int world(int place) const { return members_[static_cast<std::size_t>(place)]; }
  std::uint64_t next_tag() { return key_.fold(sequence_++).fold(current_mark()).bits(); }

  // One message to and one from each peer, as `out(place)` and `in(place)` say.
  template <typename Out, typename In>
  void exchange(const Out& out, const In& in) {
    std::vector<GlooLink::Outgoing> outgoing;
    std::vector<GlooLink::Incoming> incoming;
    for_each_peer([&](int place) { outgoing.push_back({world(place), out(place)}); });
    for_each_peer([&](int place) { incoming.push_back({world(place), in(place)}); });
    link_->post(user_, next_tag(), outgoing, incoming).wait();
  }

  // Every peer's copy of the own slice, next to the own one, in rank order, and their reduction. A
  // direct exchange: each replica sends every peer the slice which that one reduces.
  template <typename SliceOf>
  void reduce_own_slice(ConstBytes input, Bytes output, const SliceOf& slice_at, ElementType type,
                        ReduceOp op) {
    const Slice own = slice_at(rank());
    const Bytes received = scratch_.of(own.size * static_cast<std::size_t>(size()));
    const auto from = [&](int place) {
      return received.subspan(static_cast<std::size_t>(place) * own.size, own.size);
    };
    exchange(
        [&](int place) {
          const Slice theirs = slice_at(place);
          return input.subspan(theirs.offset, theirs.size);
        },
        from);
    std::vector<const std::byte*> inputs(static_cast<std::size_t>(size()));
    for (int place = 0; place < size(); ++place) {
      inputs[static_cast<std::size_t>(place)] =
          place == rank() ? input.data() + own.offset : from(place).data();
    }
    reduce(inputs, output, type, op);
  }

  void do_all_reduce(ConstBytes input, Bytes output, ElementType type, ReduceOp op) {
    if (input.size() <= kOneRoundBytes) {
      const auto whole = [&](int) { return Slice{0, input.size()}; };
      if (!input.empty()) reduce_own_slice(input, output, whole, type, op);
      return;
    }
    const auto slice_at = [&](int place) { return slice_of(input.size(), size_of(type), place); };
    const auto part = [&](int place) {
      const Slice slice = slice_at(place);
      return output.subspan(slice.offset, slice.size);
    };
    reduce_own_slice(input, part(rank()), slice_at, type, op);
    exchange([&](int) { return ConstBytes(part(rank())); }, part);
  }

  void do_reduce_scatter(ConstBytes input, Bytes output, ElementType type, ReduceOp op) {
    if (output.empty()) return;
    const auto slice_at = [&](int place) {
      return Slice{static_cast<std::size_t>(place) * output.size(), output.size()};
    };
    reduce_own_slice(input, output, slice_at, type, op);
  }

  void do_all_gather(ConstBytes input, Bytes output) {
    const auto part = [&](int place) {
      return output.subspan(static_cast<std::size_t>(place) * input.size(), input.size());
    };
    copy_bytes(input, part(rank()));
    exchange([&](int) { return input; }, part);
  }

  void do_all_to_all(ConstBytes input, std::span<const std::size_t> send_sizes, Bytes output,
                     std::span<const std::size_t> recv_sizes) {
    const auto offsets = [](std::span<const std::size_t> sizes) {
      std::vector<std::size_t> starts;
      std::size_t next = 0;
      for (const std::size_t size : sizes) starts.push_back(std::exchange(next, next + size));
      return starts;
    };
    const auto send_at = offsets(send_sizes);
    const auto recv_at = offsets(recv_sizes);
    const auto out = [&](int place) {
      const auto p = static_cast<std::size_t>(place);
      return input.subspan(send_at[p], send_sizes[p]);
    };
    const auto in = [&](int place) {
      const auto p = static_cast<std::size_t>(place);
      return output.subspan(recv_at[p], recv_sizes[p]);
    };
    copy_bytes(out(rank()), in(rank()));
    exchange(out, in);
  }

  void do_permute(ConstBytes input, int destination, Bytes output, int source) {
    if (source == rank()) copy_bytes(input, output);
    exchange([&](int place) { return place == destination ? input : ConstBytes(); },
             [&](int place) { return place == source ? output : Bytes(); });
  }

  void do_broadcast(Bytes data, int root) {
    exchange([&](int) { return rank() == root ? ConstBytes(data) : ConstBytes(); },
             [&](int place) { return place == root ? data : Bytes(); });
  }

  void do_barrier() {
    const std::array<std::byte, 1> arrived{};
    std::vector<std::byte> others(static_cast<std::size_t>(size()));
    exchange([&](int) { return ConstBytes(arrived); },
             [&](int place) { return Bytes(others).subspan(static_cast<std::size_t>(place), 1); });
  }

  std::shared_ptr<SymmetricBuffer> do_allocate(std::size_t bytes, Copies copies) {
    return private_buffer(bytes, copies == Copies::one && size() == 1);
  }

  std::shared_ptr<Communicator> do_subgroup(std::span<const int> members, int own_place,
                                            std::uint64_t channel) override {
    std::vector<int> in_world;
    for (const int member : members) in_world.push_back(world(member));
    return std::make_shared<GlooCommunicator>(link_, std::move(in_world), own_place, channel);
  }

  std::shared_ptr<GlooLink> link_;
  std::vector<int> members_;  // their ranks on the link, in the group's order
  GlooLink::User user_;
  Key key_;  // tells this group's messages from those of others
  std::uint64_t sequence_ = 0;
  Scratch scratch_;
};

}  // namespace

std::shared_ptr<Communicator> connect_gloo(std::shared_ptr<Store> store, int rank, int size,
                                           const GlooOptions& options) {
  if (rank < 0 || rank >= size) {
    throw ValueError(str("connect_gloo: rank ", rank, " is not in a group of ", size));
  }
  auto link = std::make_shared<GlooLink>(std::move(store), rank, size, options);
  std::vector<int> everyone;
  for (int member = 0; member < size; ++member) everyone.push_back(member);
  return std::make_shared<GlooCommunicator>(std::move(link), std::move(everyone), rank, 0);
}

}  // namespace lockstep
