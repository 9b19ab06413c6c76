#include "framework/comm/deposit.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>

#include "framework/base/shard.h"
#include "framework/comm/bytes.h"
#include "framework/comm/exchange.h"
#include "framework/comm/partial_sums.h"
#include "framework/comm/reduce.h"

namespace lockstep {
namespace {

using Pieces = Exchange::Pieces;
using Sizes = Exchange::Sizes;

// Up to here processes send each other their whole inputs, which takes one round instead of two.
constexpr std::size_t kOneRoundBytes = 16 * 1024;

// The verbs of one group in one process, on behalf of all its replicas there.
class Performance {
 public:
  Performance(const GroupLayout& layout, std::span<const Deposit* const> deposits,
              Communicator* outer, CommonBuffers& common)
      : layout_(layout),
        deposits_(deposits),
        outer_(outer),
        common_(common),
        exchange_(layout, outer) {
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

  // Pieces by process to pieces by place.
  std::vector<const std::byte*> by_place(const std::vector<Pieces>& pieces) const {
    std::vector<const std::byte*> inputs(places());
    for (std::size_t place = 0; place < places(); ++place) {
      inputs[place] = pieces[host_of_[place]][index_of_[place]].data();
    }
    return inputs;
  }

  Pieces own_inputs() const {
    Pieces inputs;
    for (const Deposit* mine : deposits_) inputs.push_back(mine->input);
    return inputs;
  }

  // Where every process' outputs lie in memory that processes share, if any do. What a verb writes
  // there for others they may change as soon as it returns for them: then it must return for nobody
  // before all have written.
  std::vector<CommonBuffers::Place> common_outputs() {
    if (outer_ == nullptr || outer_->is_network()) return {};
    CommonBuffers::Place own;
    bool is_one = true;
    for (const Deposit* mine : deposits_) {
      const auto place = common_.place_of(mine->output);
      if (place.buffer != 0) own = place;
      is_one = is_one && mine->output.data() == deposits_[0]->output.data();
    }
    if (!is_one && own.buffer != 0) own.offset = ~layout_.own;  // like no other process'
    std::vector<CommonBuffers::Place> all(hosts());
    outer_->all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
    const bool any = std::ranges::any_of(all, [](const auto& place) { return place.buffer != 0; });
    return any ? all : std::vector<CommonBuffers::Place>{};
  }

  // Whether all replicas' outputs are the same memory: each process then writes its part of it.
  static bool are_one(const std::vector<CommonBuffers::Place>& outputs) {
    return !outputs.empty() && std::ranges::all_of(outputs, [&](const CommonBuffers::Place& place) {
      return place.buffer != 0 && place == outputs[0];
    });
  }

  std::vector<Sizes> sizes_of_all(std::size_t bytes) const {
    std::vector<Sizes> sizes;
    for (const auto& there : layout_.places) sizes.emplace_back(there.size(), bytes);
    return sizes;
  }

  // What the own subtrees come to.
  Pieces own_sums(const ReductionPlan& plan, const Deposit& reduction) {
    Pieces sums;
    for (const Subtree& subtree : plan.subtrees(layout_.own)) {
      const ConstBytes first = deposit_of(static_cast<int>(subtree.first)).input;
      if (subtree.count == 1) {
        sums.push_back(first);
        continue;
      }
      std::vector<const std::byte*> inputs;
      for (std::int64_t i = 0; i < subtree.count; ++i) {
        inputs.push_back(deposit_of(static_cast<int>(subtree.first + i)).input.data());
      }
      const Bytes sum = exchange_.scratch(first.size());
      reduce(inputs, sum, reduction.type, partial_op(reduction.op));
      sums.push_back(sum);
    }
    return sums;
  }

  void all_reduce() {
    const Deposit& first = *deposits_[0];
    if (first.output.empty()) return;
    if (outer_ == nullptr) {
      reduce(by_place({own_inputs()}), first.output, first.type, first.op);
    } else {
      const ReductionPlan plan(layout_.places, first.type, first.op);
      const Pieces sums = own_sums(plan, first);
      if (plan.is_one_sum_each()) {
        outer_->all_reduce(sums[0], first.output, first.type, partial_op(first.op));
        if (first.op == ReduceOp::mean) {
          divide(first.output, static_cast<int>(places()), first.type);
        }
      } else {
        all_reduce_by(plan, sums);
      }
    }
    for (const Deposit* mine : deposits_) copy_bytes(first.output, mine->output);
  }

  // To the first output. Each process reduces a slice for all, or all of a small one for itself.
  void all_reduce_by(const ReductionPlan& plan, const Pieces& sums) {
    const Deposit& first = *deposits_[0];
    const std::size_t bytes = first.output.size();
    const auto outputs = common_outputs();
    const bool is_one = are_one(outputs);
    const bool one_round = bytes <= kOneRoundBytes && !is_one;
    const auto part_of = [&](auto buffer, std::size_t host) {
      if (one_round) return buffer;
      const auto width = static_cast<std::int64_t>(size_of(first.type));
      const Shard slice =
          shard(static_cast<std::int64_t>(bytes) / width, static_cast<std::int64_t>(hosts()),
                static_cast<std::int64_t>(host));
      return buffer.subspan(static_cast<std::size_t>(slice.offset * width),
                            static_cast<std::size_t>(slice.size * width));
    };
    std::vector<Pieces> out(hosts());
    std::vector<Sizes> in;
    const Bytes own = part_of(first.output, layout_.own);
    for (std::size_t host = 0; host < hosts(); ++host) {
      for (const ConstBytes sum : sums) out[host].push_back(part_of(sum, host));
      in.emplace_back(plan.subtrees(host).size(), own.size());
    }
    const auto pieces = exchange_(std::move(out), in);
    combine(plan.in_order(pieces, 0, 1), static_cast<int>(places()), own, first.type, first.op);
    if (!one_round && !is_one) {
      std::vector<Sizes> slices(hosts());
      for (std::size_t h = 0; h < hosts(); ++h) slices[h] = {part_of(first.output, h).size()};
      const auto all = exchange_(std::vector<Pieces>(hosts(), Pieces{own}), slices);
      for (std::size_t h = 0; h < hosts(); ++h) copy_bytes(all[h][0], part_of(first.output, h));
    }
    if (!outputs.empty()) outer_->barrier();
  }

  void reduce_scatter() {
    const Deposit& first = *deposits_[0];
    const std::size_t bytes = first.output.size();
    if (bytes == 0) return;
    const auto slice = [&](ConstBytes input, int place) {
      return input.subspan(static_cast<std::size_t>(place) * bytes, bytes);
    };
    if (outer_ == nullptr) {
      for (std::size_t mine = 0; mine < deposits_.size(); ++mine) {
        std::vector<const std::byte*> inputs;
        for (const Deposit* from : deposits_) {
          inputs.push_back(slice(from->input, static_cast<int>(mine)).data());
        }
        reduce(inputs, deposits_[mine]->output, first.type, first.op);
      }
      return;
    }
    const ReductionPlan plan(layout_.places, first.type, first.op);
    const Pieces sums = own_sums(plan, first);
    std::vector<Pieces> out(hosts());
    std::vector<Sizes> in;
    for (std::size_t host = 0; host < hosts(); ++host) {
      for (const ConstBytes sum : sums) {
        for (const int place : layout_.places[host]) out[host].push_back(slice(sum, place));
      }
      in.emplace_back(plan.subtrees(host).size() * own_places().size(), bytes);
    }
    const auto pieces = exchange_(std::move(out), in);
    for (std::size_t mine = 0; mine < own_places().size(); ++mine) {
      combine(plan.in_order(pieces, mine, own_places().size()), static_cast<int>(places()),
              deposits_[mine]->output, first.type, first.op);
    }
  }

  void all_gather() {
    const Deposit& first = *deposits_[0];
    const std::size_t bytes = first.input.size();
    const auto outputs = common_outputs();
    const auto part = [&](const Deposit& to, std::size_t place) {
      return to.output.subspan(place * bytes, bytes);
    };
    if (are_one(outputs)) {
      for (const int place : own_places()) {
        copy_bytes(deposit_of(place).input, part(first, static_cast<std::size_t>(place)));
      }
      return outer_->barrier();
    }
    const auto inputs =
        by_place(exchange_(std::vector<Pieces>(hosts(), own_inputs()), sizes_of_all(bytes)));
    for (const Deposit* deposit : deposits_) {
      for (std::size_t place = 0; place < places(); ++place) {
        copy_bytes({inputs[place], bytes}, part(*deposit, place));
      }
    }
    if (!outputs.empty()) outer_->barrier();
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
    const auto pieces = exchange_(std::move(out), in);
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
    const auto pieces = exchange_(std::move(out), in);
    Sizes next(hosts(), 0);
    for (const Deposit* mine : receivers) {
      const std::size_t host = host_of_[static_cast<std::size_t>(mine->source)];
      copy_bytes(pieces[host][next[host]++], mine->output);
    }
  }

  void broadcast() {
    const int root = deposits_[0]->source;
    const auto outputs = common_outputs();
    if (are_one(outputs)) return outer_->barrier();
    std::vector<Pieces> out(hosts());
    std::vector<Sizes> in(hosts());
    if (is_here(root)) {
      for (Pieces& pieces : out) pieces = {deposit_of(root).output};
    } else {
      in[host_of_[static_cast<std::size_t>(root)]] = {deposits_[0]->output.size()};
    }
    const auto pieces = exchange_(std::move(out), in);
    for (const Deposit* mine : deposits_) {
      copy_bytes(pieces[host_of_[static_cast<std::size_t>(root)]][0], mine->output);
    }
    if (!outputs.empty()) outer_->barrier();
  }

  // Threads of one process see each other's memory as it is, and where the outer group has one copy
  // for its processes, that is also theirs. Of several processes otherwise every one has a copy for
  // each.
  void allocate() {
    const Deposit& first = *deposits_[0];
    std::shared_ptr<SymmetricBuffer> common;
    if (first.copies == Copies::one) {
      common = outer_ == nullptr ? private_buffer(first.bytes, true)
                                 : outer_->allocate(first.bytes, Copies::one);
      if (!common->is_common()) common = nullptr;
    }
    if (common && outer_ != nullptr) {
      std::uint64_t number = outer_->rank() == 0 ? CommonBuffers::new_number() : 0;
      outer_->broadcast(std::as_writable_bytes(std::span(&number, 1)), 0);
      common_.add(number, common);
    }
    for (const Deposit* mine : deposits_) {
      *mine->buffer = common ? common : private_buffer(first.bytes);
    }
  }

  const GroupLayout& layout_;
  std::span<const Deposit* const> deposits_;
  Communicator* outer_;
  CommonBuffers& common_;
  Exchange exchange_;
  std::vector<std::size_t> host_of_;   // by place: the process that has it
  std::vector<std::size_t> index_of_;  // by place: its index among those of that process
};

}  // namespace

void perform(const GroupLayout& layout, std::span<const Deposit* const> deposits,
             Communicator* outer, CommonBuffers& common) {
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
  Performance(layout, deposits, outer, common).run();
}

}  // namespace lockstep
