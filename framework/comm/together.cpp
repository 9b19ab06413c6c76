#include "framework/comm/together.h"

#include <algorithm>
#include <numeric>

#include "framework/base/text.h"
#include "framework/reduce/partial_sums.h"
#include "framework/reduce/reduce.h"

namespace lockstep::comm {
namespace {

// Parts fit in the second-level cache, and are large enough to be worth taking.
constexpr std::size_t kPartBytes = std::size_t{256} << 10;
// Waking a thread takes as long as reducing about this much.
constexpr std::size_t kWorthSharing = std::size_t{1} << 20;

bool can_be_shared(Verb::Kind kind) {
  return kind == Verb::Kind::all_reduce || kind == Verb::Kind::reduce_scatter ||
         kind == Verb::Kind::all_gather;
}

// Gives all members here the output that the first one has.
void copy_to_all(Together::Verbs verbs) {
  for (const Verb* mine : verbs) copy_bytes(verbs[0]->output, mine->output);
}

}  // namespace

void Together::run(Verbs verbs) {
  const Scratch::Use use(scratch_);
  if (!workers_ && can_be_shared(verbs[0]->kind)) return LocalWork(verbs).help();
  switch (verbs[0]->kind) {
    case Verb::Kind::all_reduce:
      return all_reduce(verbs);
    case Verb::Kind::reduce_scatter:
      return reduce_scatter(verbs);
    case Verb::Kind::all_gather:
      return all_gather(verbs);
    case Verb::Kind::all_to_all:
      return all_to_all(verbs);
    case Verb::Kind::broadcast:
      return broadcast(verbs);
    case Verb::Kind::barrier:
      if (workers_) workers_->barrier();
      return;
    case Verb::Kind::allocate:
      return allocate(verbs);
  }
}

// Returns the sums of the subtrees of the canonical order that this worker has completely.
Together::Pieces Together::own_sums(Verbs verbs) {
  const Verb& reduction = *verbs[0];
  const auto input_of = [&](std::int64_t place) { return verbs[layout_.index_of(place)]->input; };
  Pieces sums;
  for (const auto& subtree : layout_.plan(reduction.type, reduction.op).subtrees(layout_.own())) {
    const ConstBytes first = input_of(subtree.first);
    if (subtree.count == 1) {
      sums.push_back(first);
      continue;
    }
    const auto inputs = mapped(consecutive(subtree.first, subtree.count),
                               [&](std::int64_t place) { return input_of(place).data(); });
    const Bytes sum = scratch_.take(first.size());
    reduce::reduce(inputs, sum, reduction.type, reduce::partial_op(reduction.op));
    sums.push_back(sum);
  }
  return sums;
}

void Together::all_reduce(Verbs verbs) {
  if (verbs[0]->output.empty()) return;
  all_reduce_sums(own_sums(verbs), *verbs[0]);
  copy_to_all(verbs);
}

// Writes the result to the output of `verb`.
void Together::all_reduce_sums(const Pieces& sums, const Verb& verb) {
  const Bytes output = verb.output;
  if (layout_.plan(verb.type, verb.op).is_one_sum_each()) {
    workers_->all_reduce(sums[0], output, verb.type, reduce::partial_op(verb.op));
    return reduce::divide(output, static_cast<int>(layout_.size()), verb.type, verb.op);
  }
  // Each worker adds up a slice and passes it on. The first worker takes the rest, less than an
  // element for each worker.
  const std::size_t n = layout_.workers();
  const std::size_t width = size_of(verb.type);
  const std::size_t slice = output.size() / n / width * width;
  const Bytes rest = output.subspan(n * slice);
  std::vector<Ranges> ranges;
  for (std::size_t worker = 0; worker < n; ++worker) ranges.push_back({{worker * slice, slice}});
  std::vector<Bytes> results{output.subspan(layout_.own() * slice, slice)};
  ranges[0].push_back({n * slice, rest.size()});
  if (layout_.own() == 0) results.push_back(rest);
  add_up(sums, ranges, results, verb);
  if (slice > 0) workers_->all_gather(results[0], output.first(n * slice));
  if (!rest.empty()) workers_->broadcast(rest, 0);
}

void Together::reduce_scatter(Verbs verbs) {
  const std::size_t bytes = verbs[0]->output.size();
  if (bytes == 0) return;
  std::vector<Ranges> ranges;
  for (const std::vector<int>& places : layout_.places()) {
    Ranges& theirs = ranges.emplace_back();
    for (const int place : places)
      theirs.push_back({static_cast<std::size_t>(place) * bytes, bytes});
  }
  add_up(own_sums(verbs), ranges, mapped(verbs, &Verb::output), *verbs[0]);
}

// Sends each worker w ranges[w] of all sums, and adds up those of the own ranges to `results`.
void Together::add_up(const Pieces& sums, const std::vector<Ranges>& ranges,
                      std::span<const Bytes> results, const Verb& verb) {
  const reduce::ReductionPlan& plan = layout_.plan(verb.type, verb.op);
  std::vector<Pieces> sent(layout_.workers());
  std::vector<std::vector<std::size_t>> sizes(layout_.workers());
  for (std::size_t worker = 0; worker < layout_.workers(); ++worker) {
    for (const ConstBytes sum : sums) {
      for (const auto& range : ranges[worker]) {
        sent[worker].push_back(sum.subspan(range.offset, range.size));
      }
    }
    for (std::size_t i = 0; i < plan.subtrees(worker).size(); ++i) {
      for (const Bytes result : results) sizes[worker].push_back(result.size());
    }
  }
  const std::vector<Pieces> came = exchange(std::move(sent), sizes);
  for (std::size_t i = 0; i < results.size(); ++i) {
    plan.combine(came, i, results.size(), results[i], verb.type, verb.op);
  }
}

void Together::all_gather(Verbs verbs) {
  const Verb& first = *verbs[0];
  const std::size_t bytes = first.input.size();
  if (layout_.has_blocks()) {
    const std::size_t size = verbs.size() * bytes;
    Bytes block = first.output.subspan(layout_.own() * size, size);
    bool are_there = true;
    for (std::size_t i = 0; i < verbs.size(); ++i) {
      are_there = are_there && verbs[i]->input.data() == block.data() + i * bytes;
    }
    // Workers that share memory may have the output in common. Then their verb writes the missing
    // parts, once all have called it.
    if (!are_there && workers_->shares_memory()) block = scratch_.take(size);
    for (std::size_t i = 0; i < verbs.size(); ++i) {
      copy_bytes(verbs[i]->input, block.subspan(i * bytes, bytes));
    }
    workers_->all_gather(block, first.output);
  } else {
    if (workers_->shares_memory()) workers_->barrier();  // for the same reason
    for (std::size_t place = 0; place < layout_.size(); ++place) {
      const Bytes part = first.output.subspan(place * bytes, bytes);
      const std::size_t worker = layout_.worker_of(place);
      if (worker == layout_.own()) copy_bytes(verbs[layout_.index_of(place)]->input, part);
      workers_->broadcast(part, static_cast<int>(worker));
    }
  }
  copy_to_all(verbs);
}

void Together::all_to_all(Verbs verbs) {
  std::vector<Pieces> sent(layout_.workers());
  std::vector<std::vector<std::size_t>> sizes(layout_.workers());
  for (const Verb* mine : verbs) {
    const auto parts = pieces_of(mine->input, mine->send_sizes);
    for (std::size_t place = 0; place < parts.size(); ++place) {
      sent[layout_.worker_of(place)].push_back(parts[place]);
    }
  }
  for (std::size_t place = 0; place < layout_.size(); ++place) {
    for (const Verb* mine : verbs) {
      sizes[layout_.worker_of(place)].push_back(mine->recv_sizes[place]);
    }
  }
  // By worker: the pieces of its members for the first member here, then those for the next one.
  const auto came = workers_ ? exchange(std::move(sent), sizes) : sent;
  for (std::size_t i = 0; i < verbs.size(); ++i) {
    const auto to = pieces_of(verbs[i]->output, verbs[i]->recv_sizes);
    for (std::size_t from = 0; from < layout_.size(); ++from) {
      copy_bytes(came[layout_.worker_of(from)][layout_.index_of(from) * verbs.size() + i],
                 to[from]);
    }
  }
}

void Together::broadcast(Verbs verbs) {
  const int root = verbs[0]->root;
  const Bytes first = verbs[0]->output;
  const std::size_t worker = layout_.worker_of(root);
  if (worker == layout_.own()) copy_bytes(verbs[layout_.index_of(root)]->output, first);
  if (workers_) workers_->broadcast(first, static_cast<int>(worker));
  copy_to_all(verbs);
}

// A worker's threads see each other's memory, so all its members hold the copy that it holds.
void Together::allocate(Verbs verbs) {
  const Verb& first = *verbs[0];
  if (first.copies == Copies::each) {
    for (const Verb* mine : verbs) *mine->buffer = private_buffer(first.bytes);
    return;
  }
  SymmetricBuffer common =
      workers_ ? workers_->allocate(first.bytes, Copies::one) : private_buffer(first.bytes);
  if (!workers_) common.holders = {{0}};
  for (std::vector<int>& holders : common.holders) {
    std::vector<int> places;
    for (const int worker : holders) {
      const auto& its = layout_.places()[static_cast<std::size_t>(worker)];
      places.insert(places.end(), its.begin(), its.end());
    }
    std::ranges::sort(places);
    holders = std::move(places);
  }
  for (const Verb* mine : verbs) *mine->buffer = common;
}

// Sends one message to each other worker and gets one from it, with the pieces end to end.
std::vector<Together::Pieces> Together::exchange(
    std::vector<Pieces> sent, const std::vector<std::vector<std::size_t>>& sizes) {
  const std::size_t own = layout_.own();
  std::vector<std::size_t> send_sizes(sent.size(), 0);
  std::vector<std::size_t> recv_sizes(sent.size(), 0);
  for (std::size_t worker = 0; worker < sent.size(); ++worker) {
    if (worker == own) continue;
    for (const ConstBytes piece : sent[worker]) send_sizes[worker] += piece.size();
    recv_sizes[worker] = std::reduce(sizes[worker].begin(), sizes[worker].end());
  }
  const Bytes out = scratch_.take(std::reduce(send_sizes.begin(), send_sizes.end()));
  const Bytes in = scratch_.take(std::reduce(recv_sizes.begin(), recv_sizes.end()));
  Bytes rest = out;
  for (std::size_t worker = 0; worker < sent.size(); ++worker) {
    for (const ConstBytes piece : sent[worker]) {
      if (worker == own) continue;
      copy_bytes(piece, rest);
      rest = rest.subspan(piece.size());
    }
  }
  workers_->all_to_all(out, send_sizes, in, recv_sizes);
  const auto received = pieces_of(ConstBytes(in), recv_sizes);
  for (std::size_t worker = 0; worker < sent.size(); ++worker) {
    if (worker != own) sent[worker] = pieces_of(received[worker], sizes[worker]);
  }
  return sent;
}

std::unique_ptr<LocalWork> LocalWork::of(Together::Verbs verbs) {
  const Verb& first = *verbs[0];
  const std::size_t bytes = std::max(first.input.size(), first.output.size());
  if (verbs.size() < 2 || !can_be_shared(first.kind) || bytes * verbs.size() < kWorthSharing) {
    return nullptr;
  }
  return std::make_unique<LocalWork>(verbs);
}

LocalWork::LocalWork(Together::Verbs verbs) : verbs_(verbs.begin(), verbs.end()) {
  const Verb& first = *verbs_[0];
  const std::size_t n = verbs_.size();
  item_bytes_ = first.kind == Verb::Kind::all_gather ? first.input.size() : first.output.size();
  parts_per_item_ = ceil_div(item_bytes_, kPartBytes);
  const std::size_t items = first.kind == Verb::Kind::all_reduce       ? 1
                            : first.kind == Verb::Kind::reduce_scatter ? n
                                                                       : n * n;
  parts_ = items * parts_per_item_;
}

// An item is the one result of an all_reduce, which goes to every replica, a replica's result of a
// reduce_scatter, or one replica's input in another's output of an all_gather. Parts of different
// items touch different memory, but for a common output, which is written once.
void LocalWork::do_part(std::size_t index) const {
  const std::size_t n = verbs_.size();
  const std::size_t item = index / parts_per_item_;
  const std::size_t offset = index % parts_per_item_ * kPartBytes;
  const std::size_t bytes = std::min(kPartBytes, item_bytes_ - offset);
  const Verb& first = *verbs_[0];
  if (first.kind == Verb::Kind::all_gather) {
    const Verb& to = *verbs_[item / n];
    if (item / n > 0 && to.output.data() == first.output.data()) return;
    return copy_bytes(verbs_[item % n]->input.subspan(offset, bytes),
                      to.output.subspan(item % n * item_bytes_ + offset, bytes));
  }
  const std::size_t slice = first.kind == Verb::Kind::reduce_scatter ? item * item_bytes_ : 0;
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  for (const Verb* verb : verbs_) {
    inputs.push_back(verb->input.data() + slice + offset);
    std::byte* const output = verb->output.data() + offset;
    if (first.kind == Verb::Kind::all_reduce &&
        std::find(outputs.begin(), outputs.end(), output) == outputs.end()) {
      outputs.push_back(output);
    }
  }
  if (first.kind == Verb::Kind::reduce_scatter) outputs = {verbs_[item]->output.data() + offset};
  reduce::reduce(inputs, outputs, bytes, first.type, first.op);
}

}  // namespace lockstep::comm
