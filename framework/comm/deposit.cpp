#include "framework/comm/deposit.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "framework/base/shard.h"
#include "framework/comm/bytes.h"
#include "framework/comm/reduce.h"

namespace lockstep {
namespace {

using Pieces = std::vector<ConstBytes>;
using Sizes = std::vector<std::size_t>;

// Up to here processes send each other their whole inputs, which takes one round instead of two.
constexpr std::size_t kOneRoundBytes = 16 * 1024;

// The verbs of one group in one process, on behalf of all its replicas there.
class Performance {
 public:
  Performance(const GroupLayout& layout, std::span<const Deposit* const> deposits,
              Communicator* outer)
      : layout_(layout), deposits_(deposits), outer_(outer) {
    for (std::size_t host = 0; host < hosts(); ++host) {
      for (std::size_t index = 0; index < layout.places[host].size(); ++index) {
        const auto place = static_cast<std::size_t>(layout.places[host][index]);
        if (host_of_.size() <= place) {
          host_of_.resize(place + 1);
          index_of_.resize(place + 1);
        }
        host_of_[place] = host;
        index_of_[place] = index;
      }
    }
  }

  void run() {
    switch (deposits_[0]->verb) {
      case Deposit::Verb::all_reduce:
        return all_reduce();
      case Deposit::Verb::reduce_scatter:
        return reduce_scatter();
      case Deposit::Verb::all_gather:
        return all_gather();
      case Deposit::Verb::all_to_all:
        return all_to_all();
      case Deposit::Verb::permute:
        return permute();
      case Deposit::Verb::broadcast:
        return broadcast();
      case Deposit::Verb::barrier:
        if (outer_ != nullptr) outer_->barrier();
        return;
      case Deposit::Verb::allocate:
        return allocate();
    }
  }

 private:
  std::size_t hosts() const { return layout_.places.size(); }
  std::size_t places() const { return host_of_.size(); }
  const std::vector<int>& own_places() const { return layout_.places[layout_.own]; }
  bool is_here(int place) const { return host_of_[static_cast<std::size_t>(place)] == layout_.own; }
  const Deposit& deposit_of(int place) const {
    return *deposits_[index_of_[static_cast<std::size_t>(place)]];
  }

  // Sends each process its pieces and receives pieces of the sizes that `in` says: those from this
  // process itself are the ones that were to be sent, the others are in received_.
  std::vector<Pieces> exchange(std::vector<Pieces> out, const std::vector<Sizes>& in) {
    if (outer_ == nullptr) return out;
    Sizes send_sizes(hosts(), 0);
    Sizes recv_sizes(hosts(), 0);
    for (std::size_t host = 0; host < hosts(); ++host) {
      if (host == layout_.own) continue;
      for (const ConstBytes piece : out[host]) send_sizes[host] += piece.size();
      recv_sizes[host] = std::accumulate(in[host].begin(), in[host].end(), std::size_t{0});
    }
    const auto total = [](const Sizes& sizes) {
      return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    };
    const auto sent = std::make_unique_for_overwrite<std::byte[]>(total(send_sizes));
    std::size_t offset = 0;
    for (std::size_t host = 0; host < hosts(); ++host) {
      if (host == layout_.own) continue;
      for (const ConstBytes piece : out[host]) {
        copy_bytes(piece, {sent.get() + offset, piece.size()});
        offset += piece.size();
      }
    }
    received_.push_back(std::make_unique_for_overwrite<std::byte[]>(total(recv_sizes)));
    const std::byte* next = received_.back().get();
    outer_->all_to_all({sent.get(), total(send_sizes)}, send_sizes,
                       {received_.back().get(), total(recv_sizes)}, recv_sizes);
    for (std::size_t host = 0; host < hosts(); ++host) {
      if (host == layout_.own) continue;
      out[host].clear();
      for (const std::size_t size : in[host]) {
        out[host].emplace_back(next, size);
        next += size;
      }
    }
    return out;
  }

  // Pieces by process to pieces by place.
  std::vector<const std::byte*> by_place(const std::vector<Pieces>& pieces) const {
    std::vector<const std::byte*> inputs(places());
    for (std::size_t place = 0; place < places(); ++place) {
      inputs[place] = pieces[host_of_[place]][index_of_[place]].data();
    }
    return inputs;
  }

  std::vector<Sizes> sizes_of_all(std::size_t bytes) const {
    std::vector<Sizes> sizes;
    for (const auto& there : layout_.places) sizes.emplace_back(there.size(), bytes);
    return sizes;
  }

  void all_reduce() {
    const Deposit& first = *deposits_[0];
    const std::size_t bytes = first.output.size();
    if (bytes == 0) return;
    const bool one_round = outer_ == nullptr || bytes <= kOneRoundBytes;
    const std::size_t element = size_of(first.type);
    // Which part of the buffer a process reduces.
    const auto slice_at = [&](std::size_t host) {
      if (one_round) return Shard{0, static_cast<std::int64_t>(bytes)};
      const Shard part = shard(static_cast<std::int64_t>(bytes / element),
                               static_cast<std::int64_t>(hosts()), static_cast<std::int64_t>(host));
      const auto width = static_cast<std::int64_t>(element);
      return Shard{part.offset * width, part.size * width};
    };
    const auto part_of = [&](auto buffer, std::size_t host) {
      const Shard slice = slice_at(host);
      return buffer.subspan(static_cast<std::size_t>(slice.offset),
                            static_cast<std::size_t>(slice.size));
    };
    std::vector<Pieces> out(hosts());
    for (std::size_t host = 0; host < hosts(); ++host) {
      for (const Deposit* mine : deposits_) out[host].push_back(part_of(mine->input, host));
    }
    const Bytes own = part_of(first.output, layout_.own);
    const auto pieces = exchange(std::move(out), sizes_of_all(own.size()));
    reduce(by_place(pieces), own, first.type, first.op);
    if (!one_round) {
      std::vector<Sizes> slices(hosts());
      for (std::size_t h = 0; h < hosts(); ++h) slices[h] = {part_of(first.output, h).size()};
      const auto all = exchange(std::vector<Pieces>(hosts(), Pieces{own}), slices);
      for (std::size_t h = 0; h < hosts(); ++h) copy_bytes(all[h][0], part_of(first.output, h));
    }
    for (const Deposit* mine : deposits_) copy_bytes(first.output, mine->output);
  }

  void reduce_scatter() {
    const std::size_t bytes = deposits_[0]->output.size();
    if (bytes == 0) return;
    const auto slice = [&](ConstBytes input, int place) {
      return input.subspan(static_cast<std::size_t>(place) * bytes, bytes);
    };
    std::vector<Pieces> out(hosts());
    for (std::size_t host = 0; host < hosts(); ++host) {
      for (const Deposit* mine : deposits_) {
        for (const int place : layout_.places[host]) out[host].push_back(slice(mine->input, place));
      }
    }
    std::vector<Sizes> in;
    for (const auto& there : layout_.places) {
      in.emplace_back(there.size() * own_places().size(), bytes);
    }
    const auto pieces = exchange(std::move(out), in);
    for (std::size_t mine = 0; mine < own_places().size(); ++mine) {
      std::vector<const std::byte*> inputs(places());
      for (std::size_t place = 0; place < places(); ++place) {
        inputs[place] =
            pieces[host_of_[place]][index_of_[place] * own_places().size() + mine].data();
      }
      reduce(inputs, deposits_[mine]->output, deposits_[mine]->type, deposits_[mine]->op);
    }
  }

  void all_gather() {
    const std::size_t bytes = deposits_[0]->input.size();
    Pieces mine;
    for (const Deposit* deposit : deposits_) mine.push_back(deposit->input);
    const auto pieces =
        exchange(std::vector<Pieces>(hosts(), std::move(mine)), sizes_of_all(bytes));
    const auto inputs = by_place(pieces);
    for (const Deposit* deposit : deposits_) {
      for (std::size_t place = 0; place < places(); ++place) {
        copy_bytes({inputs[place], bytes}, deposit->output.subspan(place * bytes, bytes));
      }
    }
  }

  void all_to_all() {
    const auto part = [](auto buffer, std::span<const std::size_t> sizes, int place) {
      const auto p = static_cast<std::ptrdiff_t>(place);
      return buffer.subspan(std::accumulate(sizes.begin(), sizes.begin() + p, std::size_t{0}),
                            sizes[static_cast<std::size_t>(place)]);
    };
    std::vector<Pieces> out(hosts());
    std::vector<Sizes> in(hosts());
    for (std::size_t host = 0; host < hosts(); ++host) {
      for (const Deposit* mine : deposits_) {
        for (const int to : layout_.places[host]) {
          out[host].push_back(part(mine->input, mine->send_sizes, to));
        }
      }
      for (const int from : layout_.places[host]) {
        for (const Deposit* mine : deposits_) {
          in[host].push_back(mine->recv_sizes[static_cast<std::size_t>(from)]);
        }
      }
    }
    const auto pieces = exchange(std::move(out), in);
    for (std::size_t mine = 0; mine < deposits_.size(); ++mine) {
      const Deposit& to = *deposits_[mine];
      for (std::size_t from = 0; from < places(); ++from) {
        copy_bytes(pieces[host_of_[from]][index_of_[from] * deposits_.size() + mine],
                   part(to.output, to.recv_sizes, static_cast<int>(from)));
      }
    }
  }

  void permute() {
    // Between two processes messages go in the order of their sources.
    std::vector<Pieces> out(hosts());
    std::vector<Sizes> in(hosts());
    for (const Deposit* mine : deposits_) {
      if (mine->destination == Communicator::kNobody || is_here(mine->destination)) continue;
      out[host_of_[static_cast<std::size_t>(mine->destination)]].push_back(mine->input);
    }
    std::vector<const Deposit*> receivers;
    for (const Deposit* mine : deposits_) {
      if (mine->source == Communicator::kNobody) continue;
      if (is_here(mine->source)) {
        copy_bytes(deposit_of(mine->source).input, mine->output);
      } else {
        receivers.push_back(mine);
      }
    }
    std::sort(receivers.begin(), receivers.end(),
              [](const Deposit* a, const Deposit* b) { return a->source < b->source; });
    for (const Deposit* mine : receivers) {
      in[host_of_[static_cast<std::size_t>(mine->source)]].push_back(mine->output.size());
    }
    const auto pieces = exchange(std::move(out), in);
    Sizes next(hosts(), 0);
    for (const Deposit* mine : receivers) {
      const std::size_t host = host_of_[static_cast<std::size_t>(mine->source)];
      copy_bytes(pieces[host][next[host]++], mine->output);
    }
  }

  void broadcast() {
    const int root = deposits_[0]->source;
    std::vector<Pieces> out(hosts());
    std::vector<Sizes> in(hosts());
    if (is_here(root)) {
      for (Pieces& pieces : out) pieces = {deposit_of(root).output};
    } else {
      in[host_of_[static_cast<std::size_t>(root)]] = {deposits_[0]->output.size()};
    }
    const auto pieces = exchange(std::move(out), in);
    for (const Deposit* mine : deposits_) {
      copy_bytes(pieces[host_of_[static_cast<std::size_t>(root)]][0], mine->output);
    }
  }

  // Threads of one process see each other's memory as it is. Of several processes that have more
  // than one replica each, every one has a copy.
  void allocate() {
    const Deposit& first = *deposits_[0];
    const bool is_common = first.copies == Copies::one && outer_ == nullptr;
    const auto common = is_common ? private_buffer(first.bytes, true) : nullptr;
    for (const Deposit* mine : deposits_) {
      *mine->buffer = is_common ? common : private_buffer(first.bytes);
    }
  }

  const GroupLayout& layout_;
  std::span<const Deposit* const> deposits_;
  Communicator* outer_;
  std::vector<std::size_t> host_of_;   // by place: the process that has it
  std::vector<std::size_t> index_of_;  // by place: its index among those of that process
  std::vector<std::unique_ptr<std::byte[]>> received_;
};

}  // namespace

void perform(const GroupLayout& layout, std::span<const Deposit* const> deposits,
             Communicator* outer) {
  // One replica a process: the outer group is the group.
  if (outer != nullptr &&
      outer->size() == std::accumulate(layout.places.begin(), layout.places.end(), 0,
                                       [](int sum, const auto& there) {
                                         return sum + static_cast<int>(there.size());
                                       })) {
    const Deposit& mine = *deposits[0];
    switch (mine.verb) {
      case Deposit::Verb::all_reduce:
        return outer->all_reduce(mine.input, mine.output, mine.type, mine.op);
      case Deposit::Verb::reduce_scatter:
        return outer->reduce_scatter(mine.input, mine.output, mine.type, mine.op);
      case Deposit::Verb::all_gather:
        return outer->all_gather(mine.input, mine.output);
      case Deposit::Verb::all_to_all:
        return outer->all_to_all(mine.input, mine.send_sizes, mine.output, mine.recv_sizes);
      case Deposit::Verb::permute:
        return outer->permute(mine.input, mine.destination, mine.output, mine.source);
      case Deposit::Verb::broadcast:
        return outer->broadcast(mine.output, mine.source);
      case Deposit::Verb::barrier:
        return outer->barrier();
      case Deposit::Verb::allocate:
        *mine.buffer = outer->allocate(mine.bytes, mine.copies);
        return;
    }
  }
  Performance(layout, deposits, outer).run();
}

}  // namespace lockstep
