#include "framework/comm/shared/shared_communicator.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/comm/shared/rounds.h"
#include "framework/reduce/reduce.h"

namespace lockstep::comm {
namespace {

// Returns part `index` of a buffer in parts of `part` bytes: shorter at its end, empty behind it.
template <typename Buffer>
Buffer part_of(Buffer buffer, std::size_t part, std::size_t index) {
  const std::size_t begin = std::min(buffer.size(), part * index);
  return buffer.subspan(begin, std::min(part, buffer.size() - begin));
}

// The message of each member about its attempt.
struct Outcome {
  std::uint64_t offset = 0;
  std::array<char, 248> error{};  ///< ends with a zero; empty: it went well
};

// Attempts the same on all members; if it fails on one, it fails on all.
template <typename Attempt>
Outcome attempt_together(Communicator& group, const Attempt& attempt) {
  Outcome own;
  try {
    attempt(own);
  } catch (const CommError& error) {
    const std::string_view text = error.what();
    std::copy_n(text.data(), std::min(text.size(), own.error.size() - 1), own.error.data());
  }
  const std::vector<Outcome> all = group.all_gather(own);
  for (std::size_t place = 0; place < all.size(); ++place) {
    const char* const error = all[place].error.data();
    require<CommError>(error[0] == '\0', "replica ", place, ": ", error);
  }
  return all[0];
}

// Every verb meets, and then goes one of three ways, the same for all members:
// - short: the messages of the first round are all. A common output has one writer and takes a
//   round more.
// - in place: buffers that are symmetric memory are read where they are, and, by an all_reduce,
//   written there, in a second round.
// - staged: a message passes through three chunks a replica. A chunk that round r writes is reduced
//   in round r + 1 and read in r + 2, and r + 3 writes in its place.
class SharedCommunicator final : public Communicator {
 public:
  SharedCommunicator(std::shared_ptr<SharedLink> link, std::vector<int> members, int rank,
                     std::uint64_t channel)
      : Communicator(rank, static_cast<int>(members.size())),
        link_(std::move(link)),
        rounds_(link_, std::move(members), static_cast<std::size_t>(rank), channel) {}

  void run(const Verb& verb) override {
    if (count() == 1) {
      rounds_.user().check();  // a group of one waits for nobody, which would check this
      return run_alone(verb);
    }
    switch (verb.kind) {
      case Verb::Kind::all_reduce:
        return do_all_reduce(verb.input, verb.output, verb.type, verb.op);
      case Verb::Kind::reduce_scatter:
        return do_reduce_scatter(verb.input, verb.output, verb.type, verb.op);
      case Verb::Kind::all_gather:
        return do_all_gather(verb.input, verb.output);
      case Verb::Kind::all_to_all:
        return do_all_to_all(verb);
      case Verb::Kind::broadcast:
        return do_broadcast(verb.output, verb.root);
      case Verb::Kind::barrier:
        meet(verb.kind, {}, {});
        return;
      case Verb::Kind::allocate:
        *verb.buffer = do_allocate(verb.bytes, verb.copies);
        return;
    }
  }

  void abort(const std::string& reason) noexcept override { link_->cancellation()->cancel(reason); }
  void interrupt(const std::exception_ptr& error) noexcept override {
    rounds_.user().cancel(error);
  }
  bool is_network() const noexcept override { return false; }
  bool shares_memory() const noexcept override { return size() > 1; }
  SharedAddress shared_address(ConstBytes memory) const override {
    return link_->memory().extents()->find(memory);
  }
  const Ledger& ledger() const noexcept override { return link_->ledger(); }

 private:
  std::size_t me() const { return rounds_.me(); }
  std::size_t count() const { return rounds_.count(); }
  static bool is_short(std::size_t bytes) { return bytes <= HostMemory::kSmallBytes; }

  // Does the first round of a verb. Returns true if `input` is short: then a replica that `says`
  // something has said all of it.
  bool meet(Verb::Kind verb, ConstBytes input, Bytes output, bool says = true) {
    const bool short_one = is_short(input.size());
    const ConstBytes said = short_one && says ? input : ConstBytes();
    rounds_.next_verb();
    copy_bytes(said, rounds_.own_small());
    rounds_.meet(verb, current_mark(), input.size(), said.size(), input, output);
    return short_one;
  }

  std::vector<const std::byte*> all_smalls(std::size_t offset) const {
    std::vector<const std::byte*> inputs(count());
    for (std::size_t p = 0; p < count(); ++p) inputs[p] = rounds_.small(p).data() + offset;
    return inputs;
  }

  // Returns the part of a buffer that replica `place` reduces: whole cache lines, so that no two
  // replicas write to one.
  template <typename Buffer>
  Buffer slice_of(Buffer buffer, std::size_t place) const {
    return lockstep::slice_of(buffer, kAligned, count(), place);
  }

  void do_all_reduce(ConstBytes input, Bytes output, ElementType type, ReduceOp op) {
    const bool short_one = meet(Verb::Kind::all_reduce, input, output);
    const bool common = rounds_.output_is_common();
    if (short_one) {
      if (!common || me() == 0) reduce::reduce(all_smalls(0), output, type, op);
      if (common) rounds_.finish_round();
      return;
    }
    const Bytes own = slice_of(output, me());
    const auto offset = static_cast<std::size_t>(own.data() - output.data());
    const auto inputs = rounds_.inputs(offset);
    const auto outputs = rounds_.outputs(offset);
    if (inputs.empty() || outputs.empty()) return all_reduce_staged(input, output, type, op);
    const std::size_t written = common ? 1 : count();
    reduce::reduce(inputs, std::span(outputs).first(written), own.size(), type, op);
    link_->ledger().bytes_sent += own.size() * (common ? 1 : count() - 1);
    rounds_.finish_round();
  }

  // A replica writes the slices of each part that others reduce into its chunk. It reduces its own
  // slice, which stays in place, into its output and its chunk, where the others read it.
  void all_reduce_staged(ConstBytes input, Bytes output, ElementType type, ReduceOp op) {
    const std::size_t parts = ceil_div(input.size(), HostMemory::kChunkBytes);
    const bool common = rounds_.output_is_common();
    const auto slice_in_chunk = [&](std::size_t owner, std::size_t round, std::size_t place) {
      const std::size_t bytes = part_of(input, HostMemory::kChunkBytes, round).size();
      return slice_of(rounds_.chunk(owner, round).first(bytes), place);
    };
    const auto slice_in = [&](auto buffer, std::size_t round, std::size_t place) {
      return slice_of(part_of(buffer, HostMemory::kChunkBytes, round), place);
    };
    std::vector<const std::byte*> inputs(count());
    rounds_.pass(parts + (common ? 1 : 2), [&](std::size_t round) {
      for (std::size_t p = 0; round < parts && p < count(); ++p) {
        if (p != me()) rounds_.write(slice_in(input, round, p), slice_in_chunk(me(), round, p));
      }
      if (round >= 1 && round - 1 < parts) {
        const std::size_t before = round - 1;
        for (std::size_t p = 0; p < count(); ++p) {
          inputs[p] = p == me() ? slice_in(input, before, p).data()
                                : slice_in_chunk(p, before, me()).data();
        }
        const Bytes result = slice_in(output, before, me());
        const std::array outputs{result.data(), slice_in_chunk(me(), before, me()).data()};
        reduce::reduce(inputs, std::span(outputs).first(common ? 1 : 2), result.size(), type, op);
        link_->ledger().bytes_sent += result.size();
      }
      for (std::size_t p = 0; round >= 2 && !common && p < count(); ++p) {
        if (p != me()) copy_bytes(slice_in_chunk(p, round - 2, p), slice_in(output, round - 2, p));
      }
    });
  }

  void do_reduce_scatter(ConstBytes input, Bytes output, ElementType type, ReduceOp op) {
    const bool short_one = meet(Verb::Kind::reduce_scatter, input, output);
    if (short_one) return reduce::reduce(all_smalls(me() * output.size()), output, type, op);
    const auto inputs = rounds_.inputs(me() * output.size());
    if (inputs.empty()) return reduce_scatter_staged(input, output, type, op);
    reduce::reduce(inputs, output, type, op);
    rounds_.finish_round();
  }

  void reduce_scatter_staged(ConstBytes input, Bytes output, ElementType type, ReduceOp op) {
    const auto slice = [&](std::size_t place) {
      return input.subspan(place * output.size(), output.size());
    };
    std::vector<const std::byte*> inputs(count());
    pass_pieces(ceil_div(output.size(), piece_bytes()), slice, [&](std::size_t part) {
      for (std::size_t p = 0; p < count(); ++p) {
        inputs[p] = piece_of(p, part).data();
      }
      inputs[me()] = part_of(slice(me()), piece_bytes(), part).data();
      reduce::reduce(inputs, part_of(output, piece_bytes(), part), type, op);
    });
  }

  void do_all_gather(ConstBytes input, Bytes output) {
    const auto part_of_replica = [&](std::size_t p) {
      return output.subspan(p * input.size(), input.size());
    };
    const bool short_one = meet(Verb::Kind::all_gather, input, output);
    copy_bytes(input, part_of_replica(me()));
    if (rounds_.output_is_common()) return rounds_.finish_round();
    const auto gather = [&](const auto& from) {
      for (std::size_t step = 1; step < count(); ++step) {
        const std::size_t p = (me() + step) % count();
        copy_bytes({from(p), input.size()}, part_of_replica(p));
      }
    };
    if (short_one) return gather([&](std::size_t p) { return rounds_.small(p).data(); });
    const auto inputs = rounds_.inputs();
    if (inputs.empty()) return share(input, input.size(), part_of_replica);
    gather([&](std::size_t p) { return inputs[p]; });
    rounds_.finish_round();
  }

  // Passes `own` to all others. Receives `bytes` or nothing from each replica p into incoming(p).
  template <typename Incoming>
  void share(ConstBytes own, std::size_t bytes, const Incoming& incoming) {
    constexpr std::size_t kPart = HostMemory::kChunkBytes;
    const std::size_t parts = ceil_div(bytes, kPart);
    rounds_.pass(parts + 1, [&](std::size_t round) {
      if (round < parts) rounds_.write(part_of(own, kPart, round), rounds_.chunk(me(), round));
      for (std::size_t p = 0; round > 0 && p < count(); ++p) {
        if (p == me()) continue;
        const Bytes to = part_of(incoming(p), kPart, round - 1);
        copy_bytes(rounds_.chunk(p, round - 1).first(to.size()), to);
      }
    });
  }

  void do_all_to_all(const Verb& verb) {
    const auto outgoing = pieces_of(verb.input, verb.send_sizes);
    const auto incoming = pieces_of(verb.output, verb.recv_sizes);
    copy_bytes(outgoing[me()], incoming[me()]);
    rounds_.next_verb();
    // The sizes for each replica come first; then, if they fit, the bytes themselves.
    const Bytes table = rounds_.own_small().first(count() * sizeof(std::size_t));
    copy_bytes(std::as_bytes(verb.send_sizes), table);
    const bool own_is_short = is_short(table.size() + verb.input.size());
    const ConstBytes said = own_is_short ? verb.input : ConstBytes();
    copy_bytes(said, rounds_.own_small().subspan(table.size()));
    rounds_.meet(verb.kind, current_mark(), 0, table.size() + said.size(), verb.input, verb.output);

    const auto inputs = rounds_.inputs();
    std::vector<std::size_t> sizes(count());
    std::vector<bool> is_staged(count());
    std::size_t parts = 0;
    for (std::size_t p = 0; p < count(); ++p) {
      std::memcpy(sizes.data(), rounds_.small(p).data(), table.size());
      const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
      require<CollectiveMismatch>(sizes[me()] == incoming[p].size(), "replica ", rank(),
                                  " expects ", incoming[p].size(), " bytes from replica ", p,
                                  ", which sends ", sizes[me()]);
      const auto before = std::reduce(sizes.begin(), sizes.begin() + rank(), std::size_t{0});
      is_staged[p] = !is_short(table.size() + total);
      if (p != me() && !is_staged[p]) {
        copy_bytes(rounds_.small(p).subspan(table.size() + before, sizes[me()]), incoming[p]);
      } else if (p != me() && !inputs.empty()) {
        copy_bytes({inputs[p] + before, sizes[me()]}, incoming[p]);
      }
      for (std::size_t to = 0; is_staged[p] && to < count(); ++to) {
        if (to != p) parts = std::max(parts, ceil_div(sizes[to], piece_bytes()));
      }
    }
    if (parts > 0 && !inputs.empty()) return rounds_.finish_round();
    const auto staged = [&](std::size_t p) { return is_staged[me()] ? outgoing[p] : ConstBytes(); };
    pass_pieces(parts, staged, [&](std::size_t part) {
      for (std::size_t p = 0; p < count(); ++p) {
        if (p == me() || !is_staged[p]) continue;
        const Bytes to = part_of(incoming[p], piece_bytes(), part);
        copy_bytes(piece_of(p, part).first(to.size()), to);
      }
    });
  }

  // Sends outgoing(p) to each replica p in up to `parts` pieces. read(part) reads a part's pieces.
  template <typename Outgoing, typename Read>
  void pass_pieces(std::size_t parts, const Outgoing& outgoing, const Read& read) {
    const std::size_t piece = piece_bytes();
    rounds_.pass(parts > 0 ? parts + 1 : 0, [&](std::size_t round) {
      for (std::size_t p = 0; round < parts && p < count(); ++p) {
        if (p == me()) continue;
        const Bytes to = rounds_.chunk(me(), round).subspan(p * piece, piece);
        rounds_.write(part_of(outgoing(p), piece, round), to);
      }
      if (round > 0) read(round - 1);
    });
  }

  void do_broadcast(Bytes data, int root) {
    const auto from = static_cast<std::size_t>(root);
    const bool is_root = from == me();
    const bool short_one = meet(Verb::Kind::broadcast, data, data, is_root);
    if (rounds_.output_is_common()) return;
    if (short_one) {
      if (!is_root) copy_bytes(rounds_.small(from).first(data.size()), data);
      return;
    }
    if (const auto all = rounds_.inputs(); !all.empty()) {
      if (!is_root) copy_bytes({all[from], data.size()}, data);
      return rounds_.finish_round();
    }
    share(is_root ? ConstBytes(data) : ConstBytes(), data.size(),
          [&](std::size_t p) { return p == from ? data : Bytes(); });
  }

  // The first member allocates the extent and holds it while the others attach to it. Each then
  // takes the memory of a part itself, so that this part is near to the core that runs it.
  SymmetricBuffer do_allocate(std::size_t bytes, Copies copies) {
    SharedExtents& extents = *link_->memory().extents();
    const std::size_t stride = whole_pages(bytes);
    const std::size_t total = copies == Copies::one ? stride : count() * stride;
    std::shared_ptr<SharedExtents::Extent> extent;
    const Outcome offer = attempt_together(*this, [&](Outcome& own) {
      if (me() != 0) return;
      extent = extents.allocate(total);
      own.offset = extent->offset();
    });
    attempt_together(*this, [&](Outcome&) {
      if (me() != 0) extent = extents.attach(offer.offset, total);
      extent->reserve(lockstep::slice_of(extent->data(), kPage, count(), me()));
    });
    const auto data = extent->data();
    const std::size_t own = copies == Copies::one ? 0 : me() * stride;
    SymmetricBuffer buffer{.own = data.subspan(own, bytes), .memory = std::move(extent)};
    if (copies == Copies::one) buffer.holders = {consecutive(0, count())};
    return buffer;
  }

  std::shared_ptr<Communicator> do_subgroup(std::span<const int> members, int own_place,
                                            std::uint64_t channel) override {
    return std::make_shared<SharedCommunicator>(link_, items_at(rounds_.members(), members),
                                                own_place, channel);
  }

  // Returns the size of a replica's piece of a chunk: whole elements and cache lines.
  std::size_t piece_bytes() const {
    return HostMemory::kChunkBytes / count() / kAligned * kAligned;
  }
  static constexpr std::size_t kAligned = 64;
  // Returns the piece that `from` has written for this replica.
  ConstBytes piece_of(std::size_t from, std::size_t part) const {
    return rounds_.chunk(from, part).subspan(me() * piece_bytes(), piece_bytes());
  }

  std::shared_ptr<SharedLink> link_;
  SharedRounds rounds_;
};

}  // namespace

std::shared_ptr<Communicator> connect_shared(std::shared_ptr<HostMemory> memory,
                                             std::shared_ptr<Store> store, int rank, int size,
                                             const ConnectOptions& options) {
  require(rank >= 0 && rank < size, "connect_shared: rank ", rank, " is not in a group of ", size);
  auto link = std::make_shared<SharedLink>(std::move(memory), *store, rank, size, options);
  return std::make_shared<SharedCommunicator>(std::move(link), consecutive(0, size), rank, 0);
}

}  // namespace lockstep::comm
