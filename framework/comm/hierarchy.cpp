#include "framework/comm/hierarchy.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/comm/local_work.h"
#include "framework/reduce/partial_sums.h"
#include "framework/reduce/reduce.h"

namespace lockstep::comm {
namespace {

using Pieces = std::vector<ConstBytes>;
using Sizes = std::vector<std::size_t>;

// Up to here workers send each other their whole inputs, which takes one round instead of two.
constexpr std::size_t kOneRoundBytes = 16 * 1024;

}  // namespace

// One verb of all the members here.
class LocalMembers::Together {
 public:
  Together(LocalMembers& members, std::uint64_t mark, std::span<const Verb* const> verbs)
      : members_(members),
        layout_(members.layout_),
        outer_(members.outer()),
        mark_(mark),
        verbs_(verbs) {}

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
      case Verb::Kind::broadcast:
        return broadcast();
      case Verb::Kind::barrier:
        return barrier();
      case Verb::Kind::allocate:
        return allocate();
    }
  }

 private:
  bool all_are_here() const { return layout_.workers() == 1; }

  Outbox outbox() const { return Outbox(layout_.workers()); }
  Inbox inbox() const { return Inbox(layout_.workers()); }

  // What came from each worker; from this one what was to be sent to it.
  std::vector<Pieces> exchange(Outbox out, Inbox in) {
    if (all_are_here()) return out;
    members_.exchange(mark_, out, in, members_.scratch_);
    for (std::size_t worker = 0; worker < in.size(); ++worker) {
      if (worker == layout_.own()) continue;
      out[worker].clear();
      for (const auto& piece : in[worker]) out[worker].emplace_back(piece.data, piece.size);
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

  // What a verb writes to memory that workers share, others may read and change as soon as it
  // returns for them. Then it must return for nobody before all have written, and what is received
  // must not go there directly, since others may be reading it until all have sent.
  struct Outputs {
    bool are_shared = false;  ///< those of some worker
    bool are_one = false;     ///< all are the same memory: each worker then writes its part of it
    [[nodiscard]] std::byte* direct(Bytes output) const {
      return are_shared ? nullptr : output.data();
    }
  };
  Outputs outputs() {
    if (outer_ == nullptr || outer_->is_network()) return {};
    SharedAddress own;
    bool is_one = true;
    for (const Verb* mine : verbs_) {
      const SharedAddress place = outer_->shared_address(mine->output);
      if (place.extent != 0) own = place;
      is_one = is_one && mine->output.data() == verbs_[0]->output.data();
    }
    if (!is_one && own.extent != 0) own.at = ~layout_.own();  // like no other worker's
    std::vector<SharedAddress> all(layout_.workers());
    outer_->all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
    const auto is_shared = [](const SharedAddress& place) { return place.extent != 0; };
    const auto is_same = [&](const SharedAddress& place) { return place == all[0]; };
    return {std::ranges::any_of(all, is_shared),
            is_shared(all[0]) && std::ranges::all_of(all, is_same)};
  }

  // What the own subtrees come to.
  Pieces own_sums(const reduce::ReductionPlan& plan, const Verb& reduction) {
    Pieces sums;
    for (const reduce::Subtree& subtree : plan.subtrees(layout_.own())) {
      const ConstBytes first = verb_of(static_cast<int>(subtree.first)).input;
      if (subtree.count == 1) {
        sums.push_back(first);
        continue;
      }
      std::vector<const std::byte*> inputs;
      for (std::int64_t i = 0; i < subtree.count; ++i) {
        inputs.push_back(verb_of(static_cast<int>(subtree.first + i)).input.data());
      }
      const Bytes sum = members_.scratch_.take(first.size());
      reduce::reduce(inputs, sum, reduction.type, reduce::partial_op(reduction.op));
      sums.push_back(sum);
    }
    return sums;
  }

  void all_reduce() {
    const Verb& first = *verbs_[0];
    if (first.output.empty()) return;
    if (all_are_here()) return LocalWork(verbs_).help();
    const reduce::ReductionPlan plan(layout_.places(), first.type, first.op);
    const Pieces sums = own_sums(plan, first);
    if (outer_ != nullptr && plan.is_one_sum_each()) {
      outer_->all_reduce(sums[0], first.output, first.type, reduce::partial_op(first.op));
      if (first.op == reduce::ReduceOp::mean) {
        reduce::divide(first.output, static_cast<int>(layout_.size()), first.type);
      }
    } else {
      all_reduce_by(plan, sums);
    }
    for (const Verb* mine : verbs_) copy_bytes(first.output, mine->output);
  }

  // To the first output. Each worker reduces a slice for all, or all of a small one for itself.
  void all_reduce_by(const reduce::ReductionPlan& plan, const Pieces& sums) {
    const Verb& first = *verbs_[0];
    const std::size_t bytes = first.output.size();
    const Outputs outputs = this->outputs();
    const bool one_round = bytes <= kOneRoundBytes && !outputs.are_one;
    const auto part_of = [&](auto buffer, std::size_t worker) {
      if (one_round) return buffer;
      return slice_of(buffer, reduce::size_of(first.type), layout_.workers(), worker);
    };
    Outbox out = outbox();
    Inbox in = inbox();
    const Bytes own = part_of(first.output, layout_.own());
    for (std::size_t worker = 0; worker < layout_.workers(); ++worker) {
      for (const ConstBytes sum : sums) out[worker].push_back(part_of(sum, worker));
      in[worker].assign(plan.subtrees(worker).size(), {own.size()});
    }
    const auto pieces = exchange(std::move(out), std::move(in));
    reduce::combine(plan.in_order(pieces, 0, 1), static_cast<int>(layout_.size()), own, first.type,
                    first.op);
    if (!one_round && !outputs.are_one) {
      Inbox slices = inbox();
      for (std::size_t worker = 0; worker < layout_.workers(); ++worker) {
        const Bytes slice = part_of(first.output, worker);
        slices[worker] = {{slice.size(), outputs.direct(slice)}};
      }
      const auto all = exchange(Outbox(layout_.workers(), Pieces{own}), std::move(slices));
      for (std::size_t worker = 0; worker < layout_.workers(); ++worker) {
        copy_bytes(all[worker][0], part_of(first.output, worker));
      }
    }
    if (outputs.are_shared) outer_->barrier();
  }

  void reduce_scatter() {
    const Verb& first = *verbs_[0];
    const std::size_t bytes = first.output.size();
    if (bytes == 0) return;
    const auto slice = [&](ConstBytes input, int place) {
      return input.subspan(static_cast<std::size_t>(place) * bytes, bytes);
    };
    if (all_are_here()) return LocalWork(verbs_).help();
    const reduce::ReductionPlan plan(layout_.places(), first.type, first.op);
    const Pieces sums = own_sums(plan, first);
    Outbox out = outbox();
    Inbox in = inbox();
    for (std::size_t worker = 0; worker < layout_.workers(); ++worker) {
      for (const ConstBytes sum : sums) {
        for (const int place : layout_.places()[worker]) out[worker].push_back(slice(sum, place));
      }
      in[worker].assign(plan.subtrees(worker).size() * verbs_.size(), {bytes});
    }
    const auto pieces = exchange(std::move(out), std::move(in));
    for (std::size_t mine = 0; mine < verbs_.size(); ++mine) {
      reduce::combine(plan.in_order(pieces, mine, verbs_.size()), static_cast<int>(layout_.size()),
                      verbs_[mine]->output, first.type, first.op);
    }
  }

  void all_gather() {
    const Verb& first = *verbs_[0];
    const std::size_t bytes = first.input.size();
    const Outputs outputs = this->outputs();
    const auto part = [&](const Verb& to, std::size_t place) {
      return to.output.subspan(place * bytes, bytes);
    };
    if (outputs.are_one) {
      for (const int place : layout_.own_places()) {
        copy_bytes(verb_of(place).input, part(first, static_cast<std::size_t>(place)));
      }
      return outer_->barrier();
    }
    Inbox in = inbox();
    for (std::size_t worker = 0; worker < layout_.workers(); ++worker) {
      for (const int place : layout_.places()[worker]) {
        const Bytes to = part(first, static_cast<std::size_t>(place));
        in[worker].push_back({bytes, outputs.direct(to)});
      }
    }
    const auto inputs = by_place(exchange(Outbox(layout_.workers(), own_inputs()), std::move(in)));
    for (const Verb* each : verbs_) {
      for (std::size_t place = 0; place < layout_.size(); ++place) {
        copy_bytes({inputs[place], bytes}, part(*each, place));
      }
    }
    if (outputs.are_shared) outer_->barrier();
  }

  void all_to_all() {
    const auto cut = [](auto buffer, std::span<const std::size_t> sizes) {
      std::vector<decltype(buffer)> parts;
      for (const std::size_t size : sizes) {
        parts.push_back(buffer.first(size));
        buffer = buffer.subspan(size);
      }
      return parts;
    };
    std::vector<Pieces> sent;
    std::vector<std::vector<Bytes>> received;
    for (const Verb* mine : verbs_) {
      sent.push_back(cut(mine->input, mine->send_sizes));
      received.push_back(cut(mine->output, mine->recv_sizes));
    }
    Outbox out = outbox();
    Inbox in = inbox();
    for (std::size_t place = 0; place < layout_.size(); ++place) {
      for (const auto& to : received) {
        in[layout_.worker_of(place)].push_back({to[place].size(), to[place].data()});
      }
    }
    for (const Pieces& from : sent) {
      for (std::size_t place = 0; place < layout_.size(); ++place) {
        out[layout_.worker_of(place)].push_back(from[place]);
      }
    }
    const auto pieces = exchange(std::move(out), std::move(in));
    for (std::size_t mine = 0; mine < verbs_.size(); ++mine) {
      for (std::size_t from = 0; from < layout_.size(); ++from) {
        copy_bytes(pieces[layout_.worker_of(from)][layout_.index_of(from) * verbs_.size() + mine],
                   received[mine][from]);
      }
    }
  }

  void broadcast() {
    const int root = verbs_[0]->root;
    const Outputs outputs = this->outputs();
    if (outputs.are_one) return outer_->barrier();
    Outbox out = outbox();
    Inbox in = inbox();
    const Bytes first = verbs_[0]->output;
    if (is_here(root)) {
      for (Pieces& pieces : out) pieces = {verb_of(root).output};
    } else {
      in[layout_.worker_of(root)] = {{first.size(), outputs.direct(first)}};
    }
    const auto pieces = exchange(std::move(out), std::move(in));
    for (const Verb* mine : verbs_) {
      copy_bytes(pieces[layout_.worker_of(root)][0], mine->output);
    }
    if (outputs.are_shared) outer_->barrier();
  }

  void barrier() {
    if (outer_ != nullptr) return outer_->barrier();
    static constexpr std::array<std::byte, 1> kHere{};
    exchange(Outbox(layout_.workers(), Pieces{kHere}), Inbox(layout_.workers(), {{1}}));
  }

  // Threads of one worker see each other's memory as it is, and where the outer group has one copy
  // for its workers, that is also theirs. Of several workers otherwise every member has a copy.
  void allocate() {
    const Verb& first = *verbs_[0];
    SymmetricBuffer common;
    if (first.copies == Copies::one && all_are_here()) common = private_buffer(first.bytes, true);
    if (first.copies == Copies::one && outer_ != nullptr) {
      common = outer_->allocate(first.bytes, Copies::one);
    }
    for (const Verb* mine : verbs_) {
      *mine->buffer = common.is_common ? common : private_buffer(first.bytes);
    }
  }

  LocalMembers& members_;
  const GroupLayout& layout_;
  Communicator* outer_;
  std::uint64_t mark_;
  std::span<const Verb* const> verbs_;
};

GroupLayout::GroupLayout(std::span<const watch::GroupMember> members, int own_worker) {
  for (const watch::GroupMember& member : members) {
    const auto known = std::find(numbers_.begin(), numbers_.end(), member.worker);
    const auto worker = static_cast<std::size_t>(known - numbers_.begin());
    if (known == numbers_.end()) {
      numbers_.push_back(member.worker);
      places_.emplace_back();
    }
    if (member.worker == own_worker) own_ = worker;
    index_of_.push_back(places_[worker].size());
    places_[worker].push_back(static_cast<int>(worker_of_.size()));
    worker_of_.push_back(worker);
  }
}

GroupLayout GroupLayout::one_each(int workers, int own) {
  std::vector<watch::GroupMember> members(static_cast<std::size_t>(workers));
  for (int worker = 0; worker < workers; ++worker) {
    members[static_cast<std::size_t>(worker)].worker = worker;
  }
  return {members, own};
}

// Through the outer Communicator there is one message to and one from each worker.
void LocalMembers::exchange(std::uint64_t, const Outbox& out, Inbox& in, Scratch& scratch) {
  const auto own = static_cast<std::size_t>(outer_->rank());
  Sizes send_sizes(out.size(), 0);
  Sizes recv_sizes(in.size(), 0);
  for (std::size_t worker = 0; worker < out.size(); ++worker) {
    if (worker == own) continue;
    for (const ConstBytes piece : out[worker]) send_sizes[worker] += piece.size();
    for (const auto& piece : in[worker]) recv_sizes[worker] += piece.size;
  }
  const auto total = [](const Sizes& sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  };
  const Bytes sent = scratch.take(total(send_sizes));
  std::byte* to = sent.data();
  for (std::size_t worker = 0; worker < out.size(); ++worker) {
    if (worker == own) continue;
    for (const ConstBytes piece : out[worker]) {
      copy_bytes(piece, {to, piece.size()});
      to += piece.size();
    }
  }
  const Bytes received = scratch.take(total(recv_sizes));
  outer_->all_to_all(sent, send_sizes, received, recv_sizes);
  std::byte* from = received.data();
  for (std::size_t worker = 0; worker < in.size(); ++worker) {
    if (worker == own) continue;
    for (auto& piece : in[worker]) {
      if (piece.data == nullptr) piece.data = from;
      copy_bytes({from, piece.size}, {piece.data, piece.size});
      from += piece.size;
    }
  }
}

void LocalMembers::run_all(std::uint64_t mark, std::span<const Verb* const> verbs) {
  if (outer_) outer_->mark(mark);
  // Where each worker has one member, the outer group is the group.
  if (outer_ && layout_.workers() == layout_.size()) return outer_->run(*verbs[0]);
  scratch_.clear();  // a verb that has thrown may have left some
  Together(*this, mark, verbs).run();
  scratch_.clear();
}

}  // namespace lockstep::comm
