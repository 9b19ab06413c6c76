#include "framework/comm/shared_communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/shard.h"
#include "framework/base/text.h"
#include "framework/comm/reduce.h"
#include "framework/comm/shared_link.h"

namespace lockstep {
namespace {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

void copy(ConstBytes from, Bytes to) {
  if (!from.empty() && from.data() != to.data()) std::memmove(to.data(), from.data(), from.size());
}

// Part `index` of a buffer in parts of `part` bytes; the last may be shorter, those behind it
// empty.
template <typename Buffer>
Buffer part_of(Buffer buffer, std::size_t part, std::size_t index) {
  const std::size_t begin = std::min(buffer.size(), part * index);
  return buffer.subspan(begin, std::min(part, buffer.size() - begin));
}

std::size_t parts_in(std::size_t bytes, std::size_t part) {
  return (bytes + part - 1) / part;
}

// One group of a replica. Members go through rounds together: each raises its flag to the number of
// the round that it has finished, and nobody begins round r + 1 before all have finished round r.
//
// Every verb begins with a round of its own, in which each member says what it has called and, if
// that is short, all it has to say: the next verb's goes to the other of two places, which nobody
// reads any more, since whoever has begun the verb in between has left the one before. In the
// rounds that follow a longer message passes through three chunks: what is written in round r is
// reduced in round r + 1 and read in r + 2, and r + 3 writes in its place.
class SharedCommunicator final : public Communicator {
 public:
  SharedCommunicator(std::shared_ptr<SharedLink> link, std::vector<int> members, int rank,
                     std::uint64_t channel)
      : Communicator(rank, static_cast<int>(members.size())),
        link_(std::move(link)),
        members_(std::move(members)) {
    if (members_.size() == 1) return;
    Key key(channel);
    for (const int member : members_) key = key.fold(static_cast<std::uint64_t>(member));
    region_ = link_->memory().hold(key.bits(), members_.size());
    // It goes on where this replica has left off with an object before this.
    round_ = region_->line(me()).round.value();
    verbs_ = region_->line(me()).verbs.load();
  }

  void abort(const std::string& reason) noexcept override { link_->abort(reason); }
  void interrupt(const std::exception_ptr& error) noexcept override {
    link_->interrupt(user_, error);
  }
  const Ledger& ledger() const noexcept override { return link_->ledger(); }

 private:
  enum class Verb { all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, barrier };

  std::size_t me() const { return static_cast<std::size_t>(rank()); }
  std::size_t count() const { return members_.size(); }
  bool is_alone() const { return members_.size() == 1; }
  std::size_t which() const { return verbs_ % 2; }
  Bytes small(std::size_t place) const { return region_->small(place, which()); }
  Bytes own_small() const { return small(me()); }
  Bytes chunk(std::size_t place, std::size_t round) const {
    return region_->chunk(place, round % HostMemory::kChunks);
  }

  // This replica has finished a round; returns when all have.
  void finish_round() {
    region_->line(me()).round.raise(++round_);
    for (std::size_t step = 1; step < count(); ++step) {
      const std::size_t place = (me() + step) % count();
      link_->wait(user_, region_->line(place).round, round_, members_[place], members_);
    }
  }

  // The first round of a verb. What of it is in own_small() was put there after next_verb().
  void next_verb() { region_->line(me()).verbs.store(++verbs_); }
  void meet(Verb verb, std::size_t bytes, std::size_t said) {
    link_->check(user_);
    HostMemory::Call& own = region_->line(me()).calls[which()];
    const std::uint64_t mark =
        Key(current_mark()).fold(static_cast<std::uint64_t>(verb)).fold(bytes).bits();
    own.mark.store(mark);
    own.bytes.store(said);
    link_->ledger().bytes_sent += said;
    ++link_->ledger().rounds;
    finish_round();
    for (std::size_t place = 0; place < count(); ++place) {
      if (region_->line(place).calls[which()].mark.load() != mark) {
        throw CollectiveMismatch("replicas called different collectives, or with other sizes");
      }
    }
  }

  // Rounds 0 to `rounds` - 1 of a longer message, in each of which `step` does this replica's part.
  template <typename Step>
  void pass(std::size_t rounds, const Step& step) {
    for (std::size_t round = 0; round < rounds; ++round) {
      step(round);
      finish_round();
    }
    link_->ledger().rounds += rounds;
  }

  void write(ConstBytes message, Bytes to) {
    copy(message, to);
    link_->ledger().bytes_sent += message.size();
  }

  std::vector<const std::byte*> all_smalls(std::size_t offset) const {
    std::vector<const std::byte*> inputs(count());
    for (std::size_t place = 0; place < count(); ++place)
      inputs[place] = small(place).data() + offset;
    return inputs;
  }

  // The part of `buffer` that replica `place` reduces: whole elements, as even as can be.
  template <typename Buffer>
  Buffer slice_of(Buffer buffer, std::size_t element, std::size_t place) const {
    const Shard part = shard(static_cast<std::int64_t>(buffer.size() / element),
                             static_cast<std::int64_t>(count()), static_cast<std::int64_t>(place));
    return buffer.subspan(static_cast<std::size_t>(part.offset) * element,
                          static_cast<std::size_t>(part.size) * element);
  }

  // Begins a reduction of which this replica's result is that of the inputs' bytes from `offset`
  // on. Whether it is done, because the inputs are short.
  bool reduced_at_once(Verb verb, ConstBytes input, std::size_t offset, Bytes output,
                       ElementType type, ReduceOp op) {
    if (is_alone()) {
      const std::byte* const only = input.data();
      reduce({&only, 1}, output, type, op);
      return true;
    }
    next_verb();
    const bool is_short = input.size() <= HostMemory::kSmallBytes;
    if (is_short) copy(input, own_small());
    meet(verb, input.size(), is_short ? input.size() : 0);
    if (is_short) reduce(all_smalls(offset), output, type, op);
    return is_short;
  }

  void do_all_reduce(ConstBytes input, Bytes output, ElementType type, ReduceOp op) override {
    if (reduced_at_once(Verb::all_reduce, input, 0, output, type, op)) return;
    const std::size_t element = size_of(type);
    const std::size_t parts = parts_in(input.size(), HostMemory::kChunkBytes);
    pass(parts + 2, [&](std::size_t round) {
      if (round < parts) {
        write(part_of(input, HostMemory::kChunkBytes, round), chunk(me(), round));
      }
      if (round >= 1 && round - 1 < parts) {
        const std::size_t bytes = part_of(input, HostMemory::kChunkBytes, round - 1).size();
        const auto slice_at = [&](std::size_t place) {
          return slice_of(chunk(place, round - 1).first(bytes), element, me());
        };
        std::vector<const std::byte*> inputs(count());
        for (std::size_t p = 0; p < count(); ++p) {
          inputs[p] = slice_of(chunk(p, round - 1).first(bytes), element, me()).data();
        }
        reduce(inputs, slice_at(me()), type, op);
      }
      if (round >= 2) {
        const Bytes result = part_of(output, HostMemory::kChunkBytes, round - 2);
        for (std::size_t p = 0; p < count(); ++p) {
          copy(slice_of(chunk(p, round - 2).first(result.size()), element, p),
               slice_of(result, element, p));
        }
      }
    });
  }

  void do_reduce_scatter(ConstBytes input, Bytes output, ElementType type, ReduceOp op) override {
    if (reduced_at_once(Verb::reduce_scatter, input, me() * output.size(), output, type, op))
      return;

    // A chunk has a piece for each replica.
    const std::size_t piece = HostMemory::kChunkBytes / count() / kAligned * kAligned;
    const std::size_t parts = parts_in(output.size(), piece);
    const auto slice = [&](std::size_t place) {
      return input.subspan(place * output.size(), output.size());
    };
    pass(parts + 1, [&](std::size_t round) {
      for (std::size_t p = 0; round < parts && p < count(); ++p) {
        if (p != me()) {
          write(part_of(slice(p), piece, round), chunk(me(), round).subspan(p * piece, piece));
        }
      }
      if (round == 0) return;
      std::vector<const std::byte*> inputs(count());
      for (std::size_t p = 0; p < count(); ++p) {
        inputs[p] = p == me() ? part_of(slice(p), piece, round - 1).data()
                              : chunk(p, round - 1).data() + me() * piece;
      }
      reduce(inputs, part_of(output, piece, round - 1), type, op);
    });
  }

  void do_all_gather(ConstBytes input, Bytes output) override {
    const auto place_of = [&](std::size_t p) {
      return output.subspan(p * input.size(), input.size());
    };
    copy(input, place_of(me()));
    if (is_alone()) return;
    next_verb();
    const bool is_short = input.size() <= HostMemory::kSmallBytes;
    if (is_short) copy(input, own_small());
    meet(Verb::all_gather, input.size(), is_short ? input.size() : 0);
    const std::size_t parts = is_short ? 0 : parts_in(input.size(), HostMemory::kChunkBytes);
    for (std::size_t p = 0; is_short && p < count(); ++p) {
      if (p != me()) copy(small(p).first(input.size()), place_of(p));
    }
    pass(is_short ? 0 : parts + 1, [&](std::size_t round) {
      if (round < parts) {
        write(part_of(input, HostMemory::kChunkBytes, round), chunk(me(), round));
      }
      for (std::size_t p = 0; round > 0 && p < count(); ++p) {
        if (p == me()) continue;
        const Bytes to = part_of(place_of(p), HostMemory::kChunkBytes, round - 1);
        copy(chunk(p, round - 1).first(to.size()), to);
      }
    });
  }

  void do_all_to_all(ConstBytes input, std::span<const std::size_t> send_sizes, Bytes output,
                     std::span<const std::size_t> recv_sizes) override {
    const auto offsets = [](std::span<const std::size_t> sizes) {
      std::vector<std::size_t> starts(sizes.size());
      std::exclusive_scan(sizes.begin(), sizes.end(), starts.begin(), std::size_t{0});
      return starts;
    };
    const auto send_at = offsets(send_sizes);
    const auto recv_at = offsets(recv_sizes);
    const auto outgoing = [&](std::size_t p) { return input.subspan(send_at[p], send_sizes[p]); };
    const auto incoming = [&](std::size_t p) { return output.subspan(recv_at[p], recv_sizes[p]); };
    copy(outgoing(me()), incoming(me()));
    if (is_alone()) return;
    next_verb();
    // What is sent to each replica comes first; then, if it fits, all of it.
    const Bytes table = own_small().first(count() * sizeof(std::size_t));
    std::memcpy(table.data(), send_sizes.data(), table.size());
    const bool own_is_short = table.size() + input.size() <= HostMemory::kSmallBytes;
    if (own_is_short) copy(input, own_small().subspan(table.size()));
    meet(Verb::all_to_all, 0, table.size() + (own_is_short ? input.size() : 0));

    const std::size_t piece = HostMemory::kChunkBytes / count() / kAligned * kAligned;
    std::vector<std::size_t> sizes(count());
    std::vector<bool> is_short(count());
    std::size_t parts = 0;
    for (std::size_t p = 0; p < count(); ++p) {
      std::memcpy(sizes.data(), small(p).data(), table.size());
      const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
      is_short[p] = table.size() + total <= HostMemory::kSmallBytes;
      if (sizes[me()] != recv_sizes[p]) {
        throw CollectiveMismatch(str("replica ", rank(), " expects ", recv_sizes[p],
                                     " bytes from replica ", p, ", which sends ", sizes[me()]));
      }
      const std::size_t before = offsets(sizes)[me()];
      if (is_short[p]) {
        if (p != me()) copy(small(p).subspan(table.size() + before, recv_sizes[p]), incoming(p));
        continue;
      }
      for (std::size_t to = 0; to < count(); ++to) {
        if (to != p) parts = std::max(parts, parts_in(sizes[to], piece));
      }
    }
    pass(parts > 0 ? parts + 1 : 0, [&](std::size_t round) {
      for (std::size_t p = 0; !own_is_short && round < parts && p < count(); ++p) {
        if (p != me()) {
          write(part_of(outgoing(p), piece, round), chunk(me(), round).subspan(p * piece, piece));
        }
      }
      for (std::size_t p = 0; round > 0 && p < count(); ++p) {
        if (p == me() || is_short[p]) continue;
        const Bytes to = part_of(incoming(p), piece, round - 1);
        copy(chunk(p, round - 1).subspan(me() * piece, to.size()), to);
      }
    });
  }

  void do_permute(ConstBytes input, int destination, Bytes output, int source) override {
    std::vector<std::size_t> send_sizes(count(), 0);
    std::vector<std::size_t> recv_sizes(count(), 0);
    if (destination != kNobody) send_sizes[static_cast<std::size_t>(destination)] = input.size();
    if (source != kNobody) recv_sizes[static_cast<std::size_t>(source)] = output.size();
    do_all_to_all(destination == kNobody ? ConstBytes() : input, send_sizes,
                  source == kNobody ? Bytes() : output, recv_sizes);
  }

  void do_broadcast(Bytes data, int root) override {
    if (is_alone()) return;
    next_verb();
    const auto from = static_cast<std::size_t>(root);
    const bool is_root = from == me();
    const bool is_short = data.size() <= HostMemory::kSmallBytes;
    if (is_short && is_root) copy(data, own_small());
    meet(Verb::broadcast, data.size(), is_short && is_root ? data.size() : 0);
    if (is_short) {
      if (!is_root) copy(small(from).first(data.size()), data);
      return;
    }
    const std::size_t parts = parts_in(data.size(), HostMemory::kChunkBytes);
    pass(parts + 1, [&](std::size_t round) {
      if (is_root && round < parts) {
        write(part_of(data, HostMemory::kChunkBytes, round), chunk(me(), round));
      }
      if (is_root || round == 0) return;
      const Bytes to = part_of(data, HostMemory::kChunkBytes, round - 1);
      copy(chunk(from, round - 1).first(to.size()), to);
    });
  }

  void do_barrier() override {
    if (is_alone()) return;
    next_verb();
    meet(Verb::barrier, 0, 0);
  }

  std::shared_ptr<Communicator> do_subgroup(std::span<const int> members, int own_place,
                                            std::uint64_t channel) override {
    std::vector<int> in_world;
    for (const int member : members) in_world.push_back(members_[static_cast<std::size_t>(member)]);
    return std::make_shared<SharedCommunicator>(link_, std::move(in_world), own_place, channel);
  }

  // Pieces begin at whole elements and cache lines.
  static constexpr std::size_t kAligned = 64;

  std::shared_ptr<SharedLink> link_;
  std::vector<int> members_;  // their ranks on the link, in the group's order
  std::shared_ptr<HostMemory::Region> region_;
  SharedLink::User user_;
  std::size_t verbs_ = 0;
  std::uint32_t round_ = 0;
};

}  // namespace

std::shared_ptr<Communicator> connect_shared(std::shared_ptr<HostMemory> memory,
                                             std::shared_ptr<Store> store, int rank, int size,
                                             const SharedOptions& options) {
  if (rank < 0 || rank >= size) {
    throw ValueError(str("connect_shared: rank ", rank, " is not in a group of ", size));
  }
  auto link = std::make_shared<SharedLink>(std::move(memory), *store, rank, size, options);
  std::vector<int> everyone(static_cast<std::size_t>(size));
  std::iota(everyone.begin(), everyone.end(), 0);
  return std::make_shared<SharedCommunicator>(std::move(link), std::move(everyone), rank, 0);
}

}  // namespace lockstep
