#include "framework/replicas/run_map.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/autograd_node.h"
#include "framework/collectives/pbroadcast.h"
#include "framework/collectives/psum.h"
#include "framework/collectives/record.h"
#include "framework/collectives/varying.h"
#include "framework/replicas/differentiated_map.h"
#include "framework/replicas/own_graph.h"
#include "framework/replicas/shared_result.h"

namespace lockstep {
namespace {

using at::Tensor;
using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;
using Tensors = std::vector<Tensor>;

// Where gradients leave the replicas' graphs, and where they go on outside.
struct Port {
  std::vector<Edge> inside;              // by replica; not valid where the replica does not use it
  std::vector<Edge> outside;             // by part
  std::vector<std::size_t> part_of;      // by replica
  std::vector<std::string> shared_over;  // as in MapInput
  Tensor like;            // of a shared one: zeros of its shape stand for no gradient
  bool captured = false;  // by the function, instead of an argument
};

// A map that has run and can be differentiated.
struct Recorded {
  MapCall options;
  Identities identities;
  std::vector<Tensors> results;  // by replica, with their graphs
  std::vector<Port> ports;
  std::vector<OwnGraph> graphs;            // by replica
  std::vector<std::uint64_t> map_calls{};  // of the replicas' levels
  std::vector<std::int64_t> begins{};      // of the replicas here, by axis
  // With check_vma, by replica: what varies in it, and its place along each axis.
  std::vector<std::shared_ptr<Variance>> variances{};
  std::vector<std::vector<std::int64_t>> places{};
  std::vector<AxisSet> result_axes{};  // over which each result varies
};

std::vector<Tensors> attach(Recorded recorded);

// Ports for what replicas captured.
void add_captured(Recorded& recorded) {
  const std::size_t replicas = recorded.graphs.size();
  const auto all_axes = names_of(recorded.options).names();
  for (std::size_t r = 0; r < replicas; ++r) {
    for (const CapturedEnd& captured : recorded.graphs[r].captured) {
      const auto is_its = [&](const Port& port) {
        return port.captured && port.outside[0] == captured.outside;
      };
      auto known = std::find_if(recorded.ports.begin(), recorded.ports.end(), is_its);
      if (known == recorded.ports.end()) {
        known = recorded.ports.insert(known, Port{std::vector<Edge>(replicas),
                                                  {captured.outside},
                                                  std::vector<std::size_t>(replicas, 0),
                                                  all_axes,
                                                  zeros_for(captured.outside),
                                                  true});
      }
      known->inside[r] = captured.inside;
    }
  }
}

class MapBackward final : public Node {
 public:
  MapBackward(Recorded recorded, std::shared_ptr<const int> caller)
      : recorded_(std::move(recorded)), caller_(std::move(caller)) {}

  std::string name() const override { return std::string(recorded_.options.map) + "Backward"; }
  void release_variables() override {
    recorded_.results.clear();
    recorded_.ports.clear();
    recorded_.graphs.clear();
  }
  variable_list apply(variable_list&& gradients) override;

 private:
  Tensors gradient_of_results(std::size_t replica, const variable_list& gradients) const;
  Port start_port(const std::vector<Tensors>& starts, std::size_t k) const;

  Recorded recorded_;
  std::shared_ptr<const int> caller_;  // the replica that called the map, if one did
  std::uint64_t runs_ = 0;
};

// Which call of the map this is, and where the first replica here is.
void note_call(Recorded& recorded, const ReplicaThread& place) {
  if (place.local != 0) return;
  for (const AxisLevel& level : place.environment->levels()) {
    recorded.map_calls.push_back(level.map_call);
  }
  const AxisLevel& own = place.environment->levels().back();
  for (std::size_t axis = 0; axis < own.axes.size(); ++axis) {
    recorded.begins.push_back(own.index(axis));
  }
}

// Whether the first of the replicas that share the port is here: their sum is one value, which is
// differentiated there.
bool counts_here(const Recorded& recorded, const Port& port) {
  const auto& over = port.shared_over;
  for (std::size_t axis = 0; axis < recorded.begins.size(); ++axis) {
    const bool shared =
        std::find(over.begin(), over.end(), recorded.options.axes[axis].name) != over.end();
    if (shared && recorded.begins[axis] != 0) return false;
  }
  return true;
}

// Positions say nothing of which captured tensor of one member is which of another.
void refuse_captured(const Recorded& recorded) {
  if (!spans_job(recorded.options)) return;
  for (const Port& port : recorded.ports) {
    if (!port.captured) continue;
    throw ValueError(lockstep::str(
        "the backward of ", text_of(recorded.options), ": the function captured a tensor of shape ",
        port.like.sizes(),
        " that requires a gradient, of which the members of a job cannot know that it is the same "
        "in all of them; pass it as an argument instead, with the in_axes entry std::nullopt (P() "
        "for shard_map)"));
  }
}

std::shared_ptr<const int> current_identity() {
  const Environment* const here = current_environment();
  return here != nullptr ? here->identity() : nullptr;
}

// The gradients of one replica's results as the start of its backward: zeros where there are none.
Tensors MapBackward::gradient_of_results(std::size_t replica,
                                         const variable_list& gradients) const {
  const Tensors& results = recorded_.results[replica];
  Tensors own;
  for (std::size_t k = 0; k < results.size(); ++k) {
    const Tensor& given = gradients[replica * results.size() + k];
    own.push_back(given.defined() || !results[k].defined() ? given
                                                           : at::zeros_like(results[k]).detach());
  }
  return own;
}

// One sum for all gradients that are shared over the same axes.
void sum_shared(const Recorded& recorded, Tensors& gradients) {
  std::vector<std::vector<std::string>> lists;
  for (const Port& port : recorded.ports) {
    const auto& over = port.shared_over;
    if (!over.empty() && std::find(lists.begin(), lists.end(), over) == lists.end()) {
      lists.push_back(over);
    }
  }
  for (const auto& over : lists) {
    std::vector<std::size_t> ports;
    Tensors operands;
    for (std::size_t p = 0; p < gradients.size(); ++p) {
      if (recorded.ports[p].shared_over != over) continue;
      ports.push_back(p);
      operands.push_back(gradients[p].defined() ? gradients[p]
                                                : at::zeros_like(recorded.ports[p].like).detach());
    }
    const AxisCall call{recorded.options.map, AxisNames(over), recorded.options.where};
    const ForwardCall map{call, 0, text_of(recorded.options)};
    const BackwardOf backward(map);
    const Tensors sums = collectives_detail::reduce_leaves(
        collectives_detail::Reduction::sum, {"psum", call.axes, call.where}, operands, {});
    for (std::size_t i = 0; i < ports.size(); ++i) gradients[ports[i]] = sums[i];
  }
}

bool is_tracked(const Recorded& recorded) {
  return recorded.options.check_vma;
}

// Where a replica is and over which axes its results vary, once it has them.
void note_results(Recorded& recorded, const ReplicaThread& place) {
  const auto r = static_cast<std::size_t>(place.local);
  const AxisLevel& own = place.environment->levels().back();
  for (std::size_t axis = 0; axis < own.axes.size(); ++axis) {
    recorded.places[r].push_back(own.index(axis));
  }
  if (r != 0) return;
  for (const Tensor& result : recorded.results[r]) {
    recorded.result_axes.push_back(recorded.variances[r]->of(result));
  }
}

// For each replica which of them share a value that varies over `axes`, counted from 0.
std::vector<std::size_t> sharers(const Recorded& recorded, AxisSet axes) {
  std::map<std::vector<std::int64_t>, std::size_t> parts;
  std::vector<std::size_t> part_of;
  for (auto place : recorded.places) {
    for (std::size_t axis = 0; axis < place.size(); ++axis) {
      if ((axes >> axis & 1) == 0) place[axis] = 0;
    }
    part_of.push_back(parts.emplace(std::move(place), parts.size()).first->second);
  }
  return part_of;
}

// A shared result is one value, taken from the first of the replicas that share it: they all begin
// their backward with its gradient.
void share_starts(const Recorded& recorded, std::size_t replica, Tensors& starts) {
  Variance& variance = *recorded.variances[replica];
  std::map<AxisSet, std::vector<std::size_t>> by_axes;
  for (std::size_t k = 0; k < starts.size(); ++k) {
    if (is_differentiable(recorded.results[replica][k])) {
      by_axes[recorded.result_axes[k]].push_back(k);
    }
  }
  const c10::AutoGradMode no_grad(false);
  for (const auto& [axes, indices] : by_axes) {
    Tensors shared;
    for (const std::size_t k : indices) shared.push_back(starts[k].detach());
    if (const AxisSet over = variance.all() & ~axes; over != 0) {
      const Untracked untracked;
      const AxisCall call{recorded.options.map, variance.names_of(over), recorded.options.where};
      const ForwardCall map{call, 0, text_of(recorded.options)};
      const BackwardOf backward(map);
      shared =
          collectives_detail::pbroadcast_leaves({"pbroadcast", call.axes, call.where}, shared, 0);
    }
    for (std::size_t i = 0; i < indices.size(); ++i) {
      starts[indices[i]] = variance.alias(shared[i], axes);
    }
  }
}

// Gradients vary as what they are by.
void type_gradients(const Recorded& recorded, std::size_t replica, Tensors& gradients) {
  const Variance& variance = *recorded.variances[replica];
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    if (!gradients[p].defined()) continue;
    const AxisSet axes = variance.all() & ~variance.set_of(recorded.ports[p].shared_over);
    if (const AxisSet more = variance.of(gradients[p]) & ~axes; more != 0) {
      throw ValueError(lockstep::str(
          "the backward of ", text_of(recorded.options), ": the gradient by ",
          recorded.ports[p].captured ? "a captured tensor" : "an argument", " of shape ",
          gradients[p].sizes(), " varies over ", AxisNames(variance.names_of(more)).text(),
          ", over which it does not: a function with a derivative of its own "
          "(torch::autograd::Function) used it with what varies; pvary it before"));
    }
    gradients[p] = varying_over(axes, {gradients[p]})[0];
  }
}

// The gradients of all ports in one replica.
Tensors backward_of_replica(Recorded& recorded, std::size_t replica, const Tensors& starts,
                            bool create_graph) {
  torch::autograd::edge_list roots;
  variable_list root_gradients;
  for (std::size_t k = 0; k < starts.size(); ++k) {
    const Tensor& result = recorded.results[replica][k];
    if (!is_differentiable(result)) continue;
    roots.push_back(recorded.graphs[replica].end_of(torch::autograd::impl::gradient_edge(result)));
    root_gradients.push_back(starts[k]);
  }
  torch::autograd::edge_list ends;
  std::vector<std::size_t> ports;
  for (std::size_t p = 0; p < recorded.ports.size(); ++p) {
    const Edge& inside = recorded.ports[p].inside[replica];
    if (!inside.is_valid()) continue;
    ends.push_back(inside);
    ports.push_back(p);
  }
  Tensors gradients(recorded.ports.size());
  if (!roots.empty() && !ends.empty()) {
    const variable_list found = torch::autograd::Engine::get_default_engine().execute(
        roots, root_gradients, /*keep_graph=*/true, create_graph, /*accumulate_grad=*/false, ends);
    for (std::size_t i = 0; i < ports.size(); ++i) gradients[ports[i]] = found[i];
  }
  if (is_tracked(recorded)) {
    type_gradients(recorded, replica, gradients);
  } else {
    sum_shared(recorded, gradients);
  }
  return gradients;
}

// The gradients of result k as an input: each replica's own, or one for those that share it.
Port MapBackward::start_port(const std::vector<Tensors>& starts, std::size_t k) const {
  const std::size_t replicas = starts.size();
  Port port{std::vector<Edge>(replicas), {}, {}, {}, {}, false};
  if (is_tracked(recorded_)) {
    const Variance& variance = *recorded_.variances[0];
    port.part_of = sharers(recorded_, recorded_.result_axes[k]);
    port.shared_over = variance.names_of(variance.all() & ~recorded_.result_axes[k]);
  } else {
    for (std::size_t r = 0; r < replicas; ++r) port.part_of.push_back(r);
  }
  for (std::size_t r = 0; r < replicas; ++r) {
    if (port.part_of[r] < port.outside.size()) continue;  // of the first that shares it
    const bool follows =
        is_differentiable(recorded_.results[r][k]) && is_differentiable(starts[r][k]);
    port.outside.push_back(follows ? torch::autograd::impl::gradient_edge(starts[r][k]) : Edge());
  }
  return port;
}

variable_list MapBackward::apply(variable_list&& gradients) {
  if (recorded_.results.empty()) {
    throw ValueError(lockstep::str("the backward of ", recorded_.options.map, " over ",
                                   names_of(recorded_.options).text(),
                                   " ran before; keep its graph (retain_graph) to run it again"));
  }
  if (current_identity() != caller_) {
    throw NameError(lockstep::str("the backward of ", recorded_.options.map, " over ",
                                  names_of(recorded_.options).text(),
                                  " runs in another replica or map than the one that called it"));
  }
  refuse_captured(recorded_);
  const bool create_graph = c10::GradMode::is_enabled();
  const MapCall options =
      call_of_backward(recorded_.options, recorded_.map_calls, ++runs_, create_graph);
  const std::size_t replicas = recorded_.results.size();
  std::vector<Tensors> starts;
  for (std::size_t r = 0; r < replicas; ++r) starts.push_back(gradient_of_results(r, gradients));

  // Under a second differentiation the incoming gradients are inputs of the map's backward, too.
  Recorded second{options, recorded_.identities, std::vector<Tensors>(replicas),
                  create_graph ? recorded_.ports : std::vector<Port>{},
                  create_graph ? recorded_.graphs : std::vector<OwnGraph>{}};
  second.variances = recorded_.variances;
  second.places.resize(recorded_.places.size());
  const std::size_t first_start = second.ports.size();
  for (std::size_t k = 0; create_graph && k < starts[0].size(); ++k) {
    second.ports.push_back(start_port(starts, k));
  }
  run_replica_threads(
      options,
      [&](const ReplicaThread& place) {
        const auto r = static_cast<std::size_t>(place.local);
        note_call(second, place);
        std::optional<VarianceScope> tracked;
        if (is_tracked(recorded_)) {
          tracked.emplace(*recorded_.variances[r]);
          share_starts(recorded_, r, starts[r]);
        }
        for (std::size_t k = 0; create_graph && k < starts[r].size(); ++k) {
          if (!is_differentiable(recorded_.results[r][k])) continue;
          // Also where nothing came in: replicas must agree on what is differentiated.
          starts[r][k] = starts[r][k].detach().requires_grad_();
          Edge& inside = second.ports[first_start + k].inside[r];
          inside = torch::autograd::impl::gradient_edge(starts[r][k]);
          second.graphs[r].inputs.insert(inside.function.get());
        }
        second.results[r] = backward_of_replica(recorded_, r, starts[r], create_graph);
        if (!create_graph) return;
        if (tracked) note_results(second, place);
        second.graphs[r].threads.insert(at::RecordFunction::currentThreadId());
        second.graphs[r].cut_off(second.results[r]);
      },
      recorded_.identities);
  if (create_graph) add_captured(second);

  const auto results = attach(std::move(second));
  variable_list outside;
  for (std::size_t p = 0; p < recorded_.ports.size(); ++p) {
    const auto& part_of = recorded_.ports[p].part_of;
    for (std::size_t part = 0; part < recorded_.ports[p].outside.size(); ++part) {
      // All replicas that share it have the same.
      const auto holder = std::find(part_of.begin(), part_of.end(), part) - part_of.begin();
      const Tensor& gradient = results[static_cast<std::size_t>(holder)][p];
      const bool counts = counts_here(recorded_, recorded_.ports[p]);
      outside.push_back(counts ? gradient : counted_elsewhere(gradient));
    }
  }
  return outside;
}

// The results as tensors of the caller's graph, whose one node stands for the whole map.
std::vector<Tensors> attach(Recorded recorded) {
  std::vector<Tensors> outside;
  bool any = false;
  for (const Tensors& results : recorded.results) {
    Tensors detached;
    for (const Tensor& result : results) {
      any |= is_differentiable(result);
      detached.push_back(result.defined() ? result.detach() : result);
    }
    outside.push_back(std::move(detached));
  }
  if (!any || !c10::GradMode::is_enabled()) return outside;

  torch::autograd::edge_list next;
  for (const Port& port : recorded.ports) {
    next.insert(next.end(), port.outside.begin(), port.outside.end());
  }
  std::vector<std::vector<bool>> differentiable;
  for (const Tensors& results : recorded.results) {
    differentiable.emplace_back();
    for (const Tensor& result : results) differentiable.back().push_back(is_differentiable(result));
  }
  const auto node = make_node<MapBackward>(std::move(recorded), current_identity());
  node->set_next_edges(std::move(next));
  for (std::size_t r = 0; r < outside.size(); ++r) {
    for (std::size_t k = 0; k < outside[r].size(); ++k) {
      if (differentiable[r][k]) {
        torch::autograd::set_history(outside[r][k], node);
      } else {
        (void)node->add_input_metadata(Node::undefined_input());
      }
    }
  }
  return outside;
}

}  // namespace

std::vector<std::vector<Tensor>> run_map(const MapCall& options,
                                         const std::vector<MapInput>& inputs, const MapBody& body) {
  if (current_variance() != nullptr) {
    throw ValueError(text_of(options) +
                     ": a map in a replica of a shard_map with check_vma is not followed; call it "
                     "in a shard_map without, or write out what it does");
  }
  const auto replicas = static_cast<std::size_t>(options.replicas);
  const bool recording = c10::GradMode::is_enabled();
  Recorded recorded{recording ? differentiated_by(options, inputs) : options,
                    Identities(replicas),
                    std::vector<Tensors>(replicas),
                    {},
                    std::vector<OwnGraph>(replicas)};
  for (const MapInput& input : inputs) {
    Port port{
        std::vector<Edge>(replicas), {}, input.part_of, input.shared_over, input.parts[0], false};
    for (const Tensor& part : input.parts) {
      port.outside.push_back(recording && is_differentiable(part)
                                 ? torch::autograd::impl::gradient_edge(part)
                                 : Edge());
    }
    recorded.ports.push_back(std::move(port));
  }
  if (options.check_vma) {
    recorded.variances.resize(replicas);
    recorded.places.resize(replicas);
  }
  run_replica_threads(recorded.options, [&](const ReplicaThread& place) {
    const auto r = static_cast<std::size_t>(place.local);
    note_call(recorded, place);
    recorded.identities[r] = place.environment->identity();
    std::optional<VarianceScope> tracked;
    if (options.check_vma) {
      recorded.variances[r] = std::make_shared<Variance>(names_of(options).names(), options.where);
      tracked.emplace(*recorded.variances[r]);
    }
    Tensors leaves;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensor part = inputs[i].parts[inputs[i].part_of[r]];
      const bool differentiable = recording && is_differentiable(part);
      if (tracked) {
        Variance& variance = *recorded.variances[r];
        part = variance.alias(part, variance.all() & ~variance.set_of(inputs[i].shared_over));
      }
      if (differentiable) {
        part = part.detach().requires_grad_();
        Edge& inside = recorded.ports[i].inside[r];
        inside = torch::autograd::impl::gradient_edge(part);
        recorded.graphs[r].inputs.insert(inside.function.get());
      }
      leaves.push_back(std::move(part));
    }
    recorded.results[r] = body(place, leaves);
    if (tracked) note_results(recorded, place);
    if (recording) {
      recorded.graphs[r].threads.insert(at::RecordFunction::currentThreadId());
      check_real(options, recorded.results[r]);
      recorded.graphs[r].cut_off(recorded.results[r]);
    }
  });
  // Inputs without a gradient are no ports.
  std::erase_if(recorded.ports, [](const Port& port) {
    return std::none_of(port.outside.begin(), port.outside.end(),
                        [](const Edge& edge) { return edge.is_valid(); });
  });
  add_captured(recorded);
  return attach(std::move(recorded));
}

}  // namespace lockstep
