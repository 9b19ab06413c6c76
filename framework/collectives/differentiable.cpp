#include "framework/collectives/differentiable.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "framework/base/random.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/collectives/operand.h"
#include "framework/timeline/recorder.h"
#include "framework/tree/error_place.h"

namespace lockstep::collectives {
namespace {

// The list of leaves ends before this length, since it must fit into a record beside the rest.
// Digests of the others follow. Calls with the same leaves must list equally many.
constexpr std::size_t kListedText = 150;
constexpr std::size_t kDigests = 6;
// The list of the leaves' paths ends before this length, too.
constexpr std::size_t kListedPaths = 60;

thread_local const ForwardCall* current_forward = nullptr;

// Every call is announced: streams would cost more here than the rest of it.
std::string text_of_leaf(const at::Tensor& leaf, const AxisCall& call) {
  std::string text = "(";
  for (std::int64_t d = 0; d < leaf.dim(); ++d) {
    if (d > 0) text += ", ";
    text += std::to_string(leaf.size(d));
  }
  text += ") ";
  text += name_of(element_type(leaf.scalar_type(), call));
  return text;
}

Key fold_leaf(const Key& key, const at::Tensor& leaf) {
  Key folded = key.fold(static_cast<std::uint64_t>(leaf.scalar_type())).fold(leaf.dim());
  for (const std::int64_t size : leaf.sizes()) {
    folded = folded.fold(size);
  }
  return folded;
}

// Returns "; leaves 12 to 15: 3fa2, 16 to 19: 81bc", to see where unlisted leaves differ.
std::string digests_of(const Leaves& leaves, std::size_t begin) {
  const std::size_t length = ceil_div(leaves.size() - begin, kDigests);
  std::vector<std::string> digests;
  for (; begin < leaves.size(); begin += length) {
    const std::size_t end = std::min(begin + length, leaves.size());
    Key key(0);
    for (std::size_t i = begin; i < end; ++i) key = fold_leaf(key, leaves[i]);
    digests.push_back(lockstep::str(begin, end - begin > 1 ? " to " + std::to_string(end - 1) : "",
                                    ": ", hexadecimal(key.bits(), 4)));
  }
  return "; leaves " + join(digests);
}

// Returns "(4, 2) float32, 3 x (2) float32", and digests of leaves for which there is no room.
std::string text_of_leaves(const Leaves& leaves, const AxisCall& call) {
  if (leaves.empty()) return "no leaves";
  std::string text;
  for (std::size_t begin = 0, end = 0; begin < leaves.size(); begin = end) {
    const at::Tensor& first = leaves[begin];
    for (end = begin; end < leaves.size() && leaves[end].sizes() == first.sizes() &&
                      leaves[end].scalar_type() == first.scalar_type();) {
      ++end;
    }
    const std::string times = end - begin > 1 ? std::to_string(end - begin) + " x " : "";
    const std::string run = times + text_of_leaf(first, call);
    if (begin > 0 && text.size() + run.size() > kListedText) {
      return lockstep::str(text, " and ", leaves.size() - begin, " more leaves",
                           digests_of(leaves, begin));
    }
    if (begin > 0) text += ", ";
    text += run;
  }
  return text;
}

// The paths of an operand's leaves, if they may differ between replicas.
struct Paths {
  std::uint64_t digest = 0;
  std::string text;  // " as ['a'], ['b'] and 3 more: 81bc"
};

Paths paths_here() {
  if (operand_here == nullptr || !operand_here->may_differ) return {};
  Key key(0);
  std::string text;
  std::size_t listed = 0;
  const auto paths = operand_here->paths();
  if (paths.size() == 1 && paths[0].empty()) return {};  // the operand is one leaf
  for (const std::string& path : paths) {
    key = key.fold(path);
    if (listed > 0 && text.size() + path.size() > kListedPaths) continue;
    text += (listed++ > 0 ? ", " : " as ") + path;
  }
  if (listed < paths.size()) {
    text +=
        " and " + std::to_string(paths.size() - listed) + " more: " + hexadecimal(key.bits(), 4);
  }
  return {key.bits(), std::move(text)};
}

// Returns "psum over 'data' at model.cpp:44", for example.
std::string site_of(const AxisCall& shown) {
  return shown.operation + (" over " + shown.axes.text() + " at " + place_of(shown.where));
}

// Returns the same, or the call whose backward this is a part of.
std::string title_of(const AxisCall& call) {
  if (current_forward != nullptr) return "the backward of " + current_forward->text;
  return site_of(call.shown());
}

// Returns a key of the call's place and axes, by addresses in this process: they are cheaper to
// compare than texts.
Key fold_place(Key key, const AxisCall& call) {
  const auto number_of = [](const char* literal) {
    return reinterpret_cast<std::uintptr_t>(literal);
  };
  key = key.fold(number_of(call.operation)).fold(number_of(call.where.file_name()));
  key = key.fold(call.where.line());
  for (const std::string& name : call.axes.names()) key = key.fold(name);
  return key;
}

// Returns the recorder's name for the call, one for all calls of one place.
std::uint32_t recorded_name(const AxisCall& call, timeline::Recorder::Track& track) {
  const AxisCall& shown = current_forward != nullptr ? current_forward->call : call.shown();
  const Key key = fold_place(Key(current_forward != nullptr ? 1 : 0), shown);
  return track.name(key.bits(), [&] {
    return (current_forward != nullptr ? "the backward of " : "") + site_of(shown);
  });
}

// Returns the call as the replica's track has it. `id` is the same on all replicas of the call.
timeline::Recorder::Details recorded(const AxisCall& call, const Leaves& leaves, std::uint64_t id) {
  timeline::Recorder::Details details{.kind = timeline::call_kind_here, .id = id};
  if (timeline::track_here == nullptr) return details;
  details.name = recorded_name(call, *timeline::track_here);
  // Counts a bucket's input, as AxisQueue does: in `leaves` it stands behind the result.
  details.bytes = details.kind == timeline::SpanKind::collective || leaves.empty()
                      ? sum_of(leaves, &at::Tensor::nbytes)
                      : leaves.back().nbytes();
  return details;
}

Key fold_operands(Key key, const Leaves& leaves, const Paths& paths, const std::string& detail) {
  key = key.fold(detail).fold(paths.digest);
  for (const at::Tensor& leaf : leaves) key = fold_leaf(key, leaf);
  return key;
}

calls::CallRecord make_record(const AxisCall& call, const Leaves& leaves, const Paths& paths,
                              const std::string& detail, bool differentiated) {
  std::string text = title_of(call);
  if (current_forward != nullptr || &call.shown() != &call) {
    text += ", which is ";
    text += call.operation;
  }
  text += " with " + text_of_leaves(leaves, call) + paths.text;
  if (!detail.empty()) text += (detail[0] == ',' ? "" : ", ") + detail;
  if (differentiated) text += calls::kDifferentiated;
  Key key = Key(differentiated ? 1 : 0).fold(std::string_view(call.operation));
  if (current_forward != nullptr) key = key.fold(current_forward->id);
  for (const std::string& name : call.axes.names()) key = key.fold(name);
  return {fold_operands(key, leaves, paths, detail).bits(), std::move(text)};
}

// Returns the record of a call, which other replicas compare and print: see differentiable(). Equal
// calls of one place share a record, since its text costs more than a small message.
std::shared_ptr<const calls::CallRecord> record_of(const AxisCall& call, const Leaves& leaves,
                                                   const std::string& detail, bool differentiated) {
  using Record = std::shared_ptr<const calls::CallRecord>;
  constexpr std::size_t kMostRecords = 256;
  static thread_local std::unordered_map<std::uint64_t, Record> records;
  const Paths paths = paths_here();
  const auto make = [&] {
    return std::make_shared<const calls::CallRecord>(
        make_record(call, leaves, paths, detail, differentiated));
  };
  if (current_forward != nullptr) return make();  // no other call is its backward
  const bool is_part = &call.shown() != &call;
  const Key own = fold_place(Key((differentiated ? 1 : 0) + (is_part ? 2 : 0)), call);
  const Key place = is_part ? fold_place(own, call.shown()) : own;
  const std::uint64_t key = fold_operands(place, leaves, paths, detail).bits();
  if (const auto known = records.find(key); known != records.end()) return known->second;
  const Record made = make();
  if (made->text.size() <= calls::CallRecord::kShown) {
    if (records.size() == kMostRecords) records.clear();
    records.emplace(key, made);
  }
  return made;
}

using torch::autograd::variable_list;

struct Shape {
  std::vector<std::int64_t> sizes;
  at::TensorOptions options;
};

class CollectiveBackward final : public torch::autograd::Node {
 public:
  explicit CollectiveBackward(ForwardCall forward) : forward_(std::move(forward)) {}

  std::string name() const override { return std::string(forward_.call.operation) + "Backward"; }

  // Called after the forward: the rule may need its results.
  void finish(const Leaves& results, BackwardRule rule) {
    for (const at::Tensor& result : results) {
      results_.push_back({result.sizes().vec(), result.options()});
    }
    rule_ = std::move(rule);
  }

  variable_list apply(variable_list&& gradients) override {
    const auto identity = identity_.lock();
    lockstep::require<NameError>(identity && identity == current_identity(), "the backward of ",
                                 forward_.call,
                                 " runs outside the replica that its forward ran in: its result "
                                 "left the map by another way than as the function's result");
    const BackwardOf backward(forward_);
    Leaves dense(results_.size());
    for (std::size_t i = 0; i < dense.size(); ++i) {
      dense[i] =
          gradients[i].defined() ? gradients[i] : at::zeros(results_[i].sizes, results_[i].options);
    }
    return torch_placed([&] { return "in the backward of " + forward_.text; },
                        [&] { return rule_(dense); });
  }

 private:
  ForwardCall forward_;
  std::weak_ptr<const int> identity_ = current_identity();
  std::vector<Shape> results_;
  BackwardRule rule_;
};

// Without elements there is no message: a barrier then meets replicas that have some, and wait.
void run_announced(const AxisCall& call, groups::ReplicaGroup& replicas,
                   const calls::CallRecord& record, std::uint64_t id, const Leaves& leaves,
                   const std::function<void()>& run) {
  const bool sends = std::ranges::any_of(leaves, [](const auto& leaf) { return leaf.numel() > 0; });
  replicas.begin(record);
  const timeline::RecordedSpan span(timeline::track_here, recorded(call, leaves, id));
  torch_placed([&] { return "in " + record.text; },
               [&] {
                 communicate(call, [&] {
                   if (!sends) replicas.barrier();
                   run();
                 });
               });
  replicas.end();
}

// A call that does not communicate is not announced: others would think that it had met them.
Leaves in_graph(const AxisCall& call, groups::ReplicaGroup& replicas, const Leaves& operands,
                const std::string& detail, const std::function<Leaves(const Leaves&)>& forward,
                const std::function<BackwardRule(const Leaves& results)>& rule, bool communicates) {
  const bool any_requires_grad =
      c10::GradMode::is_enabled() && std::ranges::any_of(operands, &at::Tensor::requires_grad);
  const auto record = record_of(call, operands, detail, any_requires_grad);
  const auto number = current_environment()->next_call(replicas);
  const auto announced_forward = [&] {
    const c10::AutoGradMode no_grad(false);
    Leaves results;
    const auto run = [&] { results = forward(operands); };
    if (communicates) {
      run_announced(call, replicas, *record, number.key, operands, run);
    } else {
      torch_placed([&] { return "in " + record->text; }, run);
    }
    return results;
  };
  if (!any_requires_grad) return announced_forward();

  const auto node = make_node<CollectiveBackward>(
      ForwardCall{call, Key(record->fingerprint).fold(number.key).bits(),
                  title_of(call) + " (call " + std::to_string(number.number) + ")"});
  node->set_next_edges(torch::autograd::collect_next_edges(operands));
  Leaves results = announced_forward();
  node->finish(results, rule(results));
  for (at::Tensor& result : results) {
    if (result.is_floating_point()) {
      torch::autograd::set_history(result, node);
    } else {
      (void)node->add_input_metadata(torch::autograd::Node::undefined_input());
    }
  }
  return results;
}

}  // namespace

std::string group_text(const AxisIndexGroups& groups) {
  return groups.empty() ? "" : ", groups " + text_of(groups);
}

BackwardOf::BackwardOf(const ForwardCall& forward) noexcept
    : ScopedValue(current_forward, &forward) {}

void announced(const AxisCall& call, groups::ReplicaGroup& replicas, const Leaves& leaves,
               const std::string& detail, const std::function<void()>& run,
               std::optional<std::uint64_t> recorded) {
  if (!leaves.empty()) {
    refuse_if_tracked(call, "what works on memory is not followed: use what returns its result");
  }
  const auto record = record_of(call, leaves, detail, false);
  const auto number = current_environment()->next_call(replicas);
  run_announced(call, replicas, *record, recorded.value_or(number.key), leaves, run);
  if (!leaves.empty()) leaves[0].unsafeGetTensorImpl()->bump_version();
}

Leaves differentiable(const AxisCall& call, groups::ReplicaGroup& replicas, const Leaves& leaves,
                      const std::string& detail,
                      const std::function<Leaves(const Leaves&)>& forward,
                      const std::function<BackwardRule(const Leaves& results)>& rule,
                      ResultAxes axes) {
  const bool communicates = axes != ResultAxes::gained;
  if (tree::current_variance() == nullptr) {
    return in_graph(call, replicas, leaves, detail, forward, rule, communicates);
  }
  const auto tracked_forward = [&](const Leaves& operands) {
    const auto results = [&] {
      const tree::Untracked untracked;
      return forward(operands);
    }();
    return tracked_results(call, operands, results, axes);
  };
  return in_graph(call, replicas, tracked_operands(call, leaves, axes), detail, tracked_forward,
                  rule, communicates);
}

}  // namespace lockstep::collectives
