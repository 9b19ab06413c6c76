#include "framework/comm/local_work.h"

#include <algorithm>
#include <cstring>

#include "framework/base/round_up.h"
#include "framework/reduce/reduce.h"

namespace lockstep::comm {
namespace {

// Small enough for the second-level cache, large enough for what taking one costs.
constexpr std::size_t kPartBytes = std::size_t{256} << 10;
// Waking a thread takes as long as reducing about this much.
constexpr std::size_t kWorthSharing = std::size_t{1} << 20;

bool can_be_shared(Verb::Kind kind) {
  return kind == Verb::Kind::all_reduce || kind == Verb::Kind::reduce_scatter ||
         kind == Verb::Kind::all_gather;
}

}  // namespace

std::unique_ptr<LocalWork> LocalWork::of(std::span<const Verb* const> verbs) {
  const Verb& first = *verbs[0];
  const std::size_t bytes = std::max(first.input.size(), first.output.size());
  if (verbs.size() < 2 || !can_be_shared(first.kind) || bytes * verbs.size() < kWorthSharing) {
    return nullptr;
  }
  return std::make_unique<LocalWork>(verbs);
}

LocalWork::LocalWork(std::span<const Verb* const> verbs) : verbs_(verbs.begin(), verbs.end()) {
  const Verb& first = *verbs_[0];
  const std::size_t n = verbs_.size();
  item_bytes_ = first.kind == Verb::Kind::all_gather ? first.input.size() : first.output.size();
  parts_per_item_ = ceil_div(item_bytes_, kPartBytes);
  const std::size_t items = first.kind == Verb::Kind::all_reduce       ? 1
                            : first.kind == Verb::Kind::reduce_scatter ? n
                                                                       : n * n;
  parts_ = items * parts_per_item_;
}

void LocalWork::help() noexcept {
  for (std::size_t part = next_++; part < parts_; part = next_++) do_part(part);
}

// Items are: the one result of an all_reduce, which goes to every replica; each replica's result of
// a reduce_scatter; what each replica gets from each in an all_gather. Parts of different items
// touch different memory, but for a common output, which is written once.
void LocalWork::do_part(std::size_t index) const {
  const std::size_t n = verbs_.size();
  const std::size_t item = index / parts_per_item_;
  const std::size_t offset = index % parts_per_item_ * kPartBytes;
  const std::size_t bytes = std::min(kPartBytes, item_bytes_ - offset);
  const Verb& first = *verbs_[0];
  if (first.kind == Verb::Kind::all_gather) {
    const Verb& to = *verbs_[item / n];
    if (item / n > 0 && to.output.data() == first.output.data()) return;
    const std::byte* const from = verbs_[item % n]->input.data() + offset;
    std::byte* const place = to.output.data() + item % n * item_bytes_ + offset;
    if (from != place) std::memcpy(place, from, bytes);
    return;
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
