#include "framework/comm/hierarchy.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <set>
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
  int workers() const { return static_cast<int>(layout_.workers()); }

  // What came from each worker; from this one what was to be sent to it.
  std::vector<Pieces> exchange(Outbox out, Inbox in) {
    if (all_are_here()) return out;
    members_.exchange(mark_, out, in);
    for (std::size_t worker = 0; worker < in.size(); ++worker) {
      if (worker == layout_.own()) continue;
      out[worker].clear();
      for (const auto& piece : in[worker]) out[worker].emplace_back(piece.data, piece.size);
    }
    return out;
  }

  // Whether the workers are on several hosts, some of them on one. Those may have one output
  // together. Only the outer Communicator knows, and its verbs write such an output once.
  bool is_over_hosts() const {
    return outer_ != nullptr && outer_->is_network() && outer_->shares_memory();
  }
  bool is_here(int place) const { return layout_.worker_of(place) == layout_.own(); }
  const Verb& verb_of(int place) const { return *verbs_[layout_.index_of(place)]; }

  // A schedule's members are here the workers. By slice: what this worker has of it, a piece of
  // each of its sums or of the result.
  using Held = std::vector<Pieces>;

  // Does a round. `coming(transfer, slice)` lists the pieces to receive of a slice, and
  // `take(transfer, slice, pieces)` gets them. The schedule's member 0 is worker `first`.
  template <typename Coming, typename Take>
  void do_round(const Schedule::Round& round, const Held& held, const Coming& coming,
                const Take& take, int first = 0) {
    const auto worker = [&](int member) {
      return static_cast<std::size_t>((member + first) % workers());
    };
    const auto each_slice = [](const Transfer& transfer, const auto& body) {
      for (int i = 0; i < transfer.slices.count; ++i) {
        body(static_cast<std::size_t>(transfer.slices[i]));
      }
    };
    Outbox out = outbox();
    Inbox in = inbox();
    for (const Transfer& each : round) {
      const std::size_t to = worker(each.to);
      const std::size_t from = worker(each.from);
      each_slice(each, [&](std::size_t slice) {
        const auto append = [](auto& pieces, const auto& more) {
          pieces.insert(pieces.end(), more.begin(), more.end());
        };
        if (from == layout_.own()) append(out[to], held[slice]);
        if (to == layout_.own()) append(in[from], coming(each, slice));
      });
    }
    const auto came = exchange(std::move(out), std::move(in));
    for (const Transfer& each : round) {
      if (worker(each.to) != layout_.own()) continue;
      auto next = came[worker(each.from)].begin();
      each_slice(each, [&](std::size_t slice) {
        const auto end = next + static_cast<std::ptrdiff_t>(coming(each, slice).size());
        take(each, slice, Pieces(next, end));
        next = end;
      });
    }
  }

  // The rounds that add. `held` begins with this worker's sums and ends with the results of the
  // slices that the schedule leaves to it. These are written to result(slice), in pieces.
  template <typename Result>
  void add_up(const Schedule& schedule, const reduce::ReductionPlan& plan, Held& held,
              const Result& result) {
    const Verb& verb = *verbs_[0];
    // Otherwise each worker has one sum, and blocks of workers have subtrees of the order.
    const bool is_one_round = schedule.adding.size() == 1;
    for (std::size_t number = 0; number < schedule.adding.size(); ++number) {
      const bool is_last = number + 1 == schedule.adding.size();
      std::map<std::size_t, std::map<std::int64_t, Pieces>> came;  // by slice and first worker
      std::set<std::size_t> replaced;  // slices of which another one has the own block's sum
      const auto coming = [&](const Transfer& transfer, std::size_t slice) {
        const std::size_t sums =
            is_one_round ? plan.subtrees(static_cast<std::size_t>(transfer.from)).size() : 1;
        std::vector<Incoming> pieces;
        for (std::size_t sum = 0; sum < sums; ++sum) {
          for (const Bytes part : result(slice)) pieces.push_back({part.size()});
        }
        return pieces;
      };
      const auto own = static_cast<std::int64_t>(layout_.own());
      do_round(schedule.adding[number], held, coming,
               [&](const Transfer& transfer, std::size_t slice, const Pieces& pieces) {
                 const reduce::Subtree of = transfer.of;
                 came[slice][of.first] = pieces;
                 if (own >= of.first && own < of.first + of.count) replaced.insert(slice);
               });
      std::size_t total = 0;
      for (auto& [slice, parts] : came) {
        // The own block begins at or before the own worker, the next one after it.
        if (replaced.count(slice) == 0) parts[own] = held[slice];
        for (const Bytes part : result(slice)) total += part.size();
      }
      Bytes sums = is_last ? Bytes{} : members_.scratch_.take(total);
      for (const auto& [slice, parts] : came) {
        const std::vector<Bytes> to = result(slice);
        held[slice].clear();
        for (std::size_t part = 0; part < to.size(); ++part) {
          Bytes sum = to[part];
          if (!is_last) {
            sum = sums.first(sum.size());
            sums = sums.subspan(sum.size());
          }
          held[slice].push_back(sum);
          if (is_one_round) {
            std::vector<Pieces> by_worker;
            for (const auto& [worker, pieces] : parts) by_worker.push_back(pieces);
            reduce::combine(plan.in_order(by_worker, part, to.size()),
                            static_cast<int>(layout_.size()), sum, verb.type, verb.op);
            continue;
          }
          std::vector<const std::byte*> inputs;
          for (const auto& [block, pieces] : parts) inputs.push_back(pieces[part].data());
          reduce::reduce(inputs, sum, verb.type, reduce::partial_op(verb.op));
          if (is_last && verb.op == reduce::ReduceOp::mean) {
            reduce::divide(sum, static_cast<int>(layout_.size()), verb.type);
          }
        }
      }
    }
  }

  // The rounds that pass on results: in the end `held` has all slices. where(slice) says where a
  // slice goes.
  template <typename Where>
  void pass_on(const Schedule& schedule, Held& held, const Where& where, int first = 0) {
    for (const Schedule::Round& round : schedule.passing) {
      do_round(
          round, held, [&](const Transfer&, std::size_t slice) { return where(slice); },
          [&](const Transfer&, std::size_t slice, const Pieces& pieces) { held[slice] = pieces; },
          first);
    }
  }

  Pieces own_inputs() const {
    Pieces inputs;
    for (const Verb* mine : verbs_) inputs.push_back(mine->input);
    return inputs;
  }

  // Workers of one host may have outputs in memory that they share. Then
  // - a barrier ends the verb, since a worker that has returned may read or change the output;
  // - pieces are received elsewhere and copied at the end: others may still send from the output.
  struct Outputs {
    bool are_shared = false;  ///< some worker's output is in shared memory
    bool are_one = false;     ///< all outputs are the same memory: each worker writes its part
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

  // The sums of the subtrees of the canonical order that this worker has completely.
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

  // To the first output.
  void all_reduce_by(const reduce::ReductionPlan& plan, const Pieces& sums) {
    const Verb& first = *verbs_[0];
    const Outputs outputs = this->outputs();
    const Schedule& schedule = members_.schedules().all_reduce(
        first.output.size(),
        {.complete = !reduce::has_partial_sums(first.type, first.op), .sliced = outputs.are_one});
    const auto slices = static_cast<std::size_t>(schedule.slices);
    const auto part_of = [&](auto buffer, std::size_t slice) {
      return slice_of(buffer, reduce::size_of(first.type), slices, slice);
    };
    Held held(slices);
    for (std::size_t slice = 0; slice < slices; ++slice) {
      for (const ConstBytes sum : sums) held[slice].push_back(part_of(sum, slice));
    }
    add_up(schedule, plan, held,
           [&](std::size_t slice) { return std::vector{part_of(first.output, slice)}; });
    if (!outputs.are_one) {
      pass_on(schedule, held, [&](std::size_t slice) {
        const Bytes part = part_of(first.output, slice);
        return std::vector<Incoming>{{part.size(), outputs.direct(part)}};
      });
      for (std::size_t slice = 0; slice < slices; ++slice) {
        copy_bytes(held[slice][0], part_of(first.output, slice));
      }
    }
    if (outputs.are_shared) outer_->barrier();
  }

  void reduce_scatter() {
    const Verb& first = *verbs_[0];
    const std::size_t bytes = first.output.size();
    if (bytes == 0) return;
    if (all_are_here()) return LocalWork(verbs_).help();
    const reduce::ReductionPlan plan(layout_.places(), first.type, first.op);
    const Schedule& schedule = members_.schedules().reduce_scatter(
        first.input.size(), {.complete = !reduce::has_partial_sums(first.type, first.op)});
    Held held(layout_.workers());
    for (const ConstBytes sum : own_sums(plan, first)) {
      for (std::size_t worker = 0; worker < layout_.workers(); ++worker) {
        for (const int place : layout_.places()[worker]) {
          held[worker].push_back(sum.subspan(static_cast<std::size_t>(place) * bytes, bytes));
        }
      }
    }
    // Of slices for other workers only the sizes count: their sums are passed on.
    add_up(schedule, plan, held, [&](std::size_t worker) {
      std::vector<Bytes> outputs;
      for (std::size_t i = 0; i < layout_.places()[worker].size(); ++i) {
        outputs.push_back(verbs_[worker == layout_.own() ? i : 0]->output);
      }
      return outputs;
    });
  }

  void all_gather() {
    const Verb& first = *verbs_[0];
    const std::size_t bytes = first.input.size();
    const Outputs outputs = this->outputs();
    const auto part = [&](const Verb& to, int place) {
      return to.output.subspan(static_cast<std::size_t>(place) * bytes, bytes);
    };
    if (outputs.are_one) {
      for (const int place : layout_.own_places()) {
        copy_bytes(verb_of(place).input, part(first, place));
      }
      return outer_->barrier();
    }
    if (is_over_hosts()) {
      for (const int place : layout_.own_places()) {
        copy_bytes(verb_of(place).input, part(first, place));
      }
      if (layout_.has_blocks()) {
        const std::size_t block = layout_.own_places().size() * bytes;
        outer_->all_gather(first.output.subspan(layout_.own() * block, block), first.output);
      } else {
        broadcast_blocks(first.output, bytes);
      }
      for (const Verb* mine : verbs_) copy_bytes(first.output, mine->output);
      return;
    }
    Held held(layout_.workers());
    held[layout_.own()] = own_inputs();
    if (!all_are_here()) {
      pass_on(members_.schedules().all_gather(first.output.size()), held, [&](std::size_t worker) {
        std::vector<Incoming> pieces;
        for (const int place : layout_.places()[worker]) {
          pieces.push_back({bytes, outputs.direct(part(first, place))});
        }
        return pieces;
      });
    }
    for (const Verb* each : verbs_) {
      for (int place = 0; place < static_cast<int>(layout_.size()); ++place) {
        copy_bytes(held[layout_.worker_of(place)][layout_.index_of(place)], part(*each, place));
      }
    }
    if (outputs.are_shared) outer_->barrier();
  }

  // Of `all`, each worker's blocks of places that are next to each other, `bytes` a place.
  void broadcast_blocks(Bytes all, std::size_t bytes) {
    for (std::size_t begin = 0, end = 0; begin < layout_.size(); begin = end) {
      const std::size_t worker = layout_.worker_of(begin);
      while (end < layout_.size() && layout_.worker_of(end) == worker) ++end;
      outer_->broadcast(all.subspan(begin * bytes, (end - begin) * bytes),
                        static_cast<int>(worker));
    }
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
    const Bytes first = verbs_[0]->output;
    if (all_are_here()) {
      for (const Verb* mine : verbs_) copy_bytes(verb_of(root).output, mine->output);
      return;
    }
    if (is_over_hosts()) {
      if (is_here(root)) copy_bytes(verb_of(root).output, first);
      outer_->broadcast(first, static_cast<int>(layout_.worker_of(root)));
      for (const Verb* mine : verbs_) copy_bytes(first, mine->output);
      return;
    }
    const Schedule& schedule = members_.schedules().broadcast(first.size());
    const auto slices = static_cast<std::size_t>(schedule.slices);
    const auto part_of = [&](Bytes buffer, std::size_t slice) {
      return slice_of(buffer, 1, slices, slice);
    };
    Held held(slices);
    for (std::size_t slice = 0; is_here(root) && slice < slices; ++slice) {
      held[slice] = {part_of(verb_of(root).output, slice)};
    }
    const auto where = [&](std::size_t slice) {
      const Bytes part = part_of(first, slice);
      return std::vector<Incoming>{{part.size(), outputs.direct(part)}};
    };
    pass_on(schedule, held, where, static_cast<int>(layout_.worker_of(root)));
    for (const Verb* mine : verbs_) {
      for (std::size_t slice = 0; slice < slices; ++slice) {
        copy_bytes(held[slice][0], part_of(mine->output, slice));
      }
    }
    if (outputs.are_shared) outer_->barrier();
  }

  // An all_reduce of a byte, of which nothing is made.
  void barrier() {
    if (outer_ != nullptr) return outer_->barrier();
    if (all_are_here()) return;
    static constexpr std::array<std::byte, 1> kHere{};
    const Held held{{kHere}};
    for (const auto& round : members_.schedules().all_reduce(1, {.whole = true}).adding) {
      do_round(
          round, held, [](const Transfer&, std::size_t) { return std::vector<Incoming>{{1}}; },
          [](const Transfer&, std::size_t, const Pieces&) {});
    }
  }

  // Threads of one worker see each other's memory as it is. So the copy that a worker holds is held
  // by all its members.
  void allocate() {
    const Verb& first = *verbs_[0];
    if (first.copies == Copies::each) {
      for (const Verb* mine : verbs_) *mine->buffer = private_buffer(first.bytes);
      return;
    }
    SymmetricBuffer common =
        outer_ ? outer_->allocate(first.bytes, Copies::one) : private_buffer(first.bytes);
    if (outer_ == nullptr) {
      common.holders = layout_.places();
    } else {
      for (std::vector<int>& holders : common.holders) {
        std::vector<int> places;
        for (const int worker : holders) {
          const auto& its = layout_.places()[static_cast<std::size_t>(worker)];
          places.insert(places.end(), its.begin(), its.end());
        }
        std::ranges::sort(places);
        holders = std::move(places);
      }
    }
    for (const Verb* mine : verbs_) *mine->buffer = common;
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

bool GroupLayout::has_blocks() const {
  const std::size_t block = own_places().size();
  bool has = block * workers() == size();
  for (std::size_t place = 0; place < size(); ++place) {
    has = has && worker_of(place) == place / block;
  }
  return has;
}

GroupLayout GroupLayout::one_each(int workers, int own) {
  std::vector<watch::GroupMember> members(static_cast<std::size_t>(workers));
  for (int worker = 0; worker < workers; ++worker) {
    members[static_cast<std::size_t>(worker)].worker = worker;
  }
  return {members, own};
}

// There is one message to and one from each worker. The outer Communicator takes them end to end.
void LocalMembers::exchange(std::uint64_t mark, const Outbox& out, Inbox& in) {
  const std::size_t own = layout_.own();
  Sizes send_sizes(out.size(), 0);
  Sizes recv_sizes(in.size(), 0);
  for (std::size_t worker = 0; worker < out.size(); ++worker) {
    if (worker == own) continue;
    for (const ConstBytes piece : out[worker]) send_sizes[worker] += piece.size();
    for (const Incoming& piece : in[worker]) recv_sizes[worker] += piece.size;
  }
  const auto end_to_end = [&](const Sizes& sizes) {
    if (!outer_) return Bytes{};
    return scratch_.take(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
  };
  const Bytes all_sent = end_to_end(send_sizes);
  const Bytes all_received = end_to_end(recv_sizes);
  const auto memory = [&](Bytes& rest, std::size_t bytes) {
    if (!outer_) return scratch_.take(bytes);
    const Bytes part = rest.first(bytes);
    rest = rest.subspan(bytes);
    return part;
  };
  std::vector<ConstBytes> sent(out.size());
  std::vector<Bytes> received(in.size());
  Bytes rest_sent = all_sent;
  Bytes rest_received = all_received;
  for (std::size_t worker = 0; worker < out.size(); ++worker) {
    if (worker == own) continue;
    if (!outer_ && out[worker].size() == 1) {
      sent[worker] = out[worker][0];
    } else if (send_sizes[worker] > 0) {
      Bytes to = memory(rest_sent, send_sizes[worker]);
      sent[worker] = to;
      for (const ConstBytes piece : out[worker]) {
        copy_bytes(piece, to);
        to = to.subspan(piece.size());
      }
    }
    if (!outer_ && in[worker].size() == 1 && in[worker][0].data != nullptr) {
      received[worker] = {in[worker][0].data, recv_sizes[worker]};
    } else if (recv_sizes[worker] > 0) {
      received[worker] = memory(rest_received, recv_sizes[worker]);
    }
  }
  if (outer_) {
    outer_->all_to_all(all_sent, send_sizes, all_received, recv_sizes);
  } else {
    transfer(mark, sent, received);
  }
  for (std::size_t worker = 0; worker < in.size(); ++worker) {
    if (worker == own) continue;
    Bytes rest = received[worker];
    for (Incoming& piece : in[worker]) {
      if (piece.data == nullptr) piece.data = rest.data();
      copy_bytes(rest.first(piece.size), {piece.data, piece.size});
      rest = rest.subspan(piece.size);
    }
  }
}

// Made when the first verb needs them, or another speed was said. Through an outer Communicator
// messages go to all workers at once.
const ScheduleChoice& LocalMembers::schedules() {
  const LinkSpeed link = link_speed().value_or(kLoopback);
  if (!schedules_ || schedules_->link() != link) {
    schedules_.emplace(static_cast<int>(layout_.workers()), link, outer_ != nullptr);
  }
  return *schedules_;
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
