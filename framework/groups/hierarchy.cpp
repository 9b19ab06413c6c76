#include "framework/groups/hierarchy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/base/shard.h"
#include "framework/reduce/partial_sums.h"
#include "framework/reduce/reduce.h"

namespace lockstep {
namespace {

using Pieces = std::vector<ConstBytes>;
using Sizes = std::vector<std::size_t>;

// Up to here workers send each other their whole inputs, which takes one round instead of two.
constexpr std::size_t kOneRoundBytes = 16 * 1024;

// One verb of all the members here.
class LocalVerb {
 public:
  LocalVerb(const GroupLayout& layout, std::span<const Verb* const> verbs, Communicator* outer,
            CommonBuffers& common)
      : layout_(layout), verbs_(verbs), outer_(outer), common_(common) {}

  void run() {
    switch (verbs_[0]->kind) {
      case Verb::Kind::all_reduce:
        return all_reduce();
      case Verb::Kind::reduce_scatter:
        return reduce_scatter();
      case Verb::Kind::all_gather:
        return all_gather();
      case Verb::Kind::all_to_all:
        return all_to_all();
      case Verb::Kind::permute:
        return permute();
      case Verb::Kind::broadcast:
        return broadcast();
      case Verb::Kind::barrier:
        if (outer_ != nullptr) outer_->barrier();
        return;
      case Verb::Kind::allocate:
        return allocate();
    }
  }

 private:
  // Memory that is there as long as this.
  Bytes scratch(std::size_t bytes) {
    scratch_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
    return {scratch_.back().get(), bytes};
  }

  // Sends each worker its pieces and receives pieces of the sizes that `in` says. Those from this
  // worker itself are the ones that were to be sent, the others are in scratch memory.
  std::vector<Pieces> exchange(std::vector<Pieces> out, const std::vector<Sizes>& in) {
    if (outer_ == nullptr) return out;
    Sizes send_sizes(layout_.workers(), 0);
    Sizes recv_sizes(layout_.workers(), 0);
    for (std::size_t worker = 0; worker < layout_.workers(); ++worker) {
      if (worker == layout_.own()) continue;
      for (const ConstBytes piece : out[worker]) send_sizes[worker] += piece.size();
      recv_sizes[worker] = std::accumulate(in[worker].begin(), in[worker].end(), std::size_t{0});
    }
    const auto total = [](const Sizes& sizes) {
      return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    };
    const Bytes sent = scratch(total(send_sizes));
    std::size_t offset = 0;
    for (std::size_t worker = 0; worker < layout_.workers(); ++worker) {
      if (worker == layout_.own()) continue;
      for (const ConstBytes piece : out[worker]) {
        copy_bytes(piece, sent.subspan(offset, piece.size()));
        offset += piece.size();
      }
    }
    const Bytes received = scratch(total(recv_sizes));
    outer_->all_to_all(sent, send_sizes, received, recv_sizes);
    const std::byte* next = received.data();
    for (std::size_t worker = 0; worker < layout_.workers(); ++worker) {
      if (worker == layout_.own()) continue;
      out[worker].clear();
      for (const std::size_t size : in[worker]) {
        out[worker].emplace_back(next, size);
        next += size;
      }
    }
    return out;
  }

  bool is_here(int place) const { return layout_.worker_of(place) == layout_.own(); }
  const Verb& verb_of(int place) const { return *verbs_[layout_.index_of(place)]; }

  // Pieces by worker to pieces by place.
  std::vector<const std::byte*> by_place(const std::vector<Pieces>& pieces) const {
    std::vector<const std::byte*> inputs(layout_.size());
    for (std::size_t place = 0; place < layout_.size(); ++place) {
      inputs[place] = pieces[layout_.worker_of(place)][layout_.index_of(place)].data();
    }
    return inputs;
  }

  Pieces own_inputs() const {
    Pieces inputs;
    for (const Verb* mine : verbs_) inputs.push_back(mine->input);
    return inputs;
  }

  // Where every worker's outputs lie in memory that workers share, if any do. What a verb writes
  // there for others they may change as soon as it returns for them: then it must return for nobody
  // before all have written.
  std::vector<CommonBuffers::Location> common_outputs() {
    if (outer_ == nullptr || outer_->is_network()) return {};
    CommonBuffers::Location own;
    bool is_one = true;
    for (const Verb* mine : verbs_) {
      const auto location = common_.find(mine->output);
      if (location.buffer != 0) own = location;
      is_one = is_one && mine->output.data() == verbs_[0]->output.data();
    }
    if (!is_one && own.buffer != 0) own.offset = ~layout_.own();  // like no other worker's
    std::vector<CommonBuffers::Location> all(layout_.workers());
    outer_->all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
    const bool any =
        std::ranges::any_of(all, [](const auto& location) { return location.buffer != 0; });
    return any ? all : std::vector<CommonBuffers::Location>{};
  }

  // Whether all replicas' outputs are the same memory: each worker then writes its part of it.
  static bool are_one(const std::vector<CommonBuffers::Location>& outputs) {
    return !outputs.empty() &&
           std::ranges::all_of(outputs, [&](const CommonBuffers::Location& location) {
             return location.buffer != 0 && location == outputs[0];
           });
  }

  std::vector<Sizes> sizes_of_all(std::size_t bytes) const {
    std::vector<Sizes> sizes;
    for (const auto& there : layout_.places()) sizes.emplace_back(there.size(), bytes);
    return sizes;
  }

  // What the own subtrees come to.
  Pieces own_sums(const ReductionPlan& plan, const Verb& reduction) {
    Pieces sums;
    for (const Subtree& subtree : plan.subtrees(layout_.own())) {
      const ConstBytes first = verb_of(static_cast<int>(subtree.first)).input;
      if (subtree.count == 1) {
        sums.push_back(first);
        continue;
      }
      std::vector<const std::byte*> inputs;
      for (std::int64_t i = 0; i < subtree.count; ++i) {
        inputs.push_back(verb_of(static_cast<int>(subtree.first + i)).input.data());
      }
      const Bytes sum = scratch(first.size());
      reduce(inputs, sum, reduction.type, partial_op(reduction.op));
      sums.push_back(sum);
    }
    return sums;
  }

  void all_reduce() {
    const Verb& first = *verbs_[0];
    if (first.output.empty()) return;
    if (outer_ == nullptr) {
      reduce(by_place({own_inputs()}), first.output, first.type, first.op);
    } else {
      const ReductionPlan plan(layout_.places(), first.type, first.op);
      const Pieces sums = own_sums(plan, first);
      if (plan.is_one_sum_each()) {
        outer_->all_reduce(sums[0], first.output, first.type, partial_op(first.op));
        if (first.op == ReduceOp::mean) {
          divide(first.output, static_cast<int>(layout_.size()), first.type);
        }
      } else {
        all_reduce_by(plan, sums);
      }
    }
    for (const Verb* mine : verbs_) copy_bytes(first.output, mine->output);
  }

  // To the first output. Each worker reduces a slice for all, or all of a small one for itself.
  void all_reduce_by(const ReductionPlan& plan, const Pieces& sums) {
    const Verb& first = *verbs_[0];
    const std::size_t bytes = first.output.size();
    const auto outputs = common_outputs();
    const bool is_one = are_one(outputs);
    const bool one_round = bytes <= kOneRoundBytes && !is_one;
    const auto part_of = [&](auto buffer, std::size_t worker) {
      if (one_round) return buffer;
      const auto width = static_cast<std::int64_t>(size_of(first.type));
      const Shard slice =
          shard(static_cast<std::int64_t>(bytes) / width,
                static_cast<std::int64_t>(layout_.workers()), static_cast<std::int64_t>(worker));
      return buffer.subspan(static_cast<std::size_t>(slice.offset * width),
                            static_cast<std::size_t>(slice.size * width));
    };
    std::vector<Pieces> out(layout_.workers());
    std::vector<Sizes> in;
    const Bytes own = part_of(first.output, layout_.own());
    for (std::size_t worker = 0; worker < layout_.workers(); ++worker) {
      for (const ConstBytes sum : sums) out[worker].push_back(part_of(sum, worker));
      in.emplace_back(plan.subtrees(worker).size(), own.size());
    }
    const auto pieces = exchange(std::move(out), in);
    combine(plan.in_order(pieces, 0, 1), static_cast<int>(layout_.size()), own, first.type,
            first.op);
    if (!one_round && !is_one) {
      std::vector<Sizes> slices(layout_.workers());
      for (std::size_t w = 0; w < layout_.workers(); ++w)
        slices[w] = {part_of(first.output, w).size()};
      const auto all = exchange(std::vector<Pieces>(layout_.workers(), Pieces{own}), slices);
      for (std::size_t w = 0; w < layout_.workers(); ++w)
        copy_bytes(all[w][0], part_of(first.output, w));
    }
    if (!outputs.empty()) outer_->barrier();
  }

  void reduce_scatter() {
    const Verb& first = *verbs_[0];
    const std::size_t bytes = first.output.size();
    if (bytes == 0) return;
    const auto slice = [&](ConstBytes input, int place) {
      return input.subspan(static_cast<std::size_t>(place) * bytes, bytes);
    };
    if (outer_ == nullptr) {
      for (std::size_t mine = 0; mine < verbs_.size(); ++mine) {
        std::vector<const std::byte*> inputs;
        for (const Verb* from : verbs_) {
          inputs.push_back(slice(from->input, static_cast<int>(mine)).data());
        }
        reduce(inputs, verbs_[mine]->output, first.type, first.op);
      }
      return;
    }
    const ReductionPlan plan(layout_.places(), first.type, first.op);
    const Pieces sums = own_sums(plan, first);
    std::vector<Pieces> out(layout_.workers());
    std::vector<Sizes> in;
    for (std::size_t worker = 0; worker < layout_.workers(); ++worker) {
      for (const ConstBytes sum : sums) {
        for (const int place : layout_.places()[worker]) out[worker].push_back(slice(sum, place));
      }
      in.emplace_back(plan.subtrees(worker).size() * layout_.own_places().size(), bytes);
    }
    const auto pieces = exchange(std::move(out), in);
    for (std::size_t mine = 0; mine < layout_.own_places().size(); ++mine) {
      combine(plan.in_order(pieces, mine, layout_.own_places().size()),
              static_cast<int>(layout_.size()), verbs_[mine]->output, first.type, first.op);
    }
  }

  void all_gather() {
    const Verb& first = *verbs_[0];
    const std::size_t bytes = first.input.size();
    const auto outputs = common_outputs();
    const auto part = [&](const Verb& to, std::size_t place) {
      return to.output.subspan(place * bytes, bytes);
    };
    if (are_one(outputs)) {
      for (const int place : layout_.own_places()) {
        copy_bytes(verb_of(place).input, part(first, static_cast<std::size_t>(place)));
      }
      return outer_->barrier();
    }
    const auto inputs = by_place(
        exchange(std::vector<Pieces>(layout_.workers(), own_inputs()), sizes_of_all(bytes)));
    for (const Verb* each : verbs_) {
      for (std::size_t place = 0; place < layout_.size(); ++place) {
        copy_bytes({inputs[place], bytes}, part(*each, place));
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
    std::vector<Pieces> out(layout_.workers());
    std::vector<Sizes> in(layout_.workers());
    for (std::size_t worker = 0; worker < layout_.workers(); ++worker) {
      for (const Verb* mine : verbs_) {
        for (const int to : layout_.places()[worker]) {
          out[worker].push_back(part(mine->input, mine->send_sizes, to));
        }
      }
      for (const int from : layout_.places()[worker]) {
        for (const Verb* mine : verbs_) {
          in[worker].push_back(mine->recv_sizes[static_cast<std::size_t>(from)]);
        }
      }
    }
    const auto pieces = exchange(std::move(out), in);
    for (std::size_t mine = 0; mine < verbs_.size(); ++mine) {
      const Verb& to = *verbs_[mine];
      for (std::size_t from = 0; from < layout_.size(); ++from) {
        copy_bytes(pieces[layout_.worker_of(from)][layout_.index_of(from) * verbs_.size() + mine],
                   part(to.output, to.recv_sizes, static_cast<int>(from)));
      }
    }
  }

  void permute() {
    // Between two workers messages go in the order of their sources.
    std::vector<Pieces> out(layout_.workers());
    std::vector<Sizes> in(layout_.workers());
    for (const Verb* mine : verbs_) {
      if (mine->destination == Communicator::kNobody || is_here(mine->destination)) continue;
      out[layout_.worker_of(mine->destination)].push_back(mine->input);
    }
    std::vector<const Verb*> receivers;
    for (const Verb* mine : verbs_) {
      if (mine->source == Communicator::kNobody) continue;
      if (is_here(mine->source)) {
        copy_bytes(verb_of(mine->source).input, mine->output);
      } else {
        receivers.push_back(mine);
      }
    }
    std::sort(receivers.begin(), receivers.end(),
              [](const Verb* a, const Verb* b) { return a->source < b->source; });
    for (const Verb* mine : receivers) {
      in[layout_.worker_of(mine->source)].push_back(mine->output.size());
    }
    const auto pieces = exchange(std::move(out), in);
    Sizes next(layout_.workers(), 0);
    for (const Verb* mine : receivers) {
      const std::size_t worker = layout_.worker_of(mine->source);
      copy_bytes(pieces[worker][next[worker]++], mine->output);
    }
  }

  void broadcast() {
    const int root = verbs_[0]->source;
    const auto outputs = common_outputs();
    if (are_one(outputs)) return outer_->barrier();
    std::vector<Pieces> out(layout_.workers());
    std::vector<Sizes> in(layout_.workers());
    if (is_here(root)) {
      for (Pieces& pieces : out) pieces = {verb_of(root).output};
    } else {
      in[layout_.worker_of(root)] = {verbs_[0]->output.size()};
    }
    const auto pieces = exchange(std::move(out), in);
    for (const Verb* mine : verbs_) {
      copy_bytes(pieces[layout_.worker_of(root)][0], mine->output);
    }
    if (!outputs.empty()) outer_->barrier();
  }

  // Threads of one worker see each other's memory as it is, and where the outer group has one copy
  // for its workers, that is also theirs. Of several workers otherwise every member has a copy.
  void allocate() {
    const Verb& first = *verbs_[0];
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
    for (const Verb* mine : verbs_) {
      *mine->buffer = common ? common : private_buffer(first.bytes);
    }
  }

  const GroupLayout& layout_;
  std::span<const Verb* const> verbs_;
  Communicator* outer_;
  CommonBuffers& common_;
  std::vector<std::unique_ptr<std::byte[]>> scratch_;
};

}  // namespace

Hierarchy::Hierarchy(GroupLayout layout, std::shared_ptr<Communicator> outer, CommonBuffers& common)
    : layout_(std::move(layout)), outer_(std::move(outer)), common_(common) {}

void Hierarchy::run(std::span<const Verb* const> verbs) {
  if (is_outer()) return outer_->run(*verbs[0]);
  LocalVerb(layout_, verbs, outer_.get(), common_).run();
}

}  // namespace lockstep
