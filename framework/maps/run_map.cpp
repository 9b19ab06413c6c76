#include "framework/maps/run_map.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/collectives/differentiable.h"
#include "framework/collectives/pbroadcast.h"
#include "framework/collectives/psum.h"
#include "framework/collectives/tracked_operations.h"
#include "framework/maps/kept_threads.h"
#include "framework/maps/own_graph.h"
#include "framework/tree/error_place.h"

namespace lockstep::maps {
namespace {

using at::Tensor;
using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;
using torch::autograd::impl::gradient_edge;
using Tensors = std::vector<Tensor>;

// Calls run(). Exceptions that are no Errors, such as LibTorch's or a map's at(), gain the map's
// call and the leaves, unless they have a place.
Tensors run_placed(const MapCall& options, const Tensors& leaves,
                   const std::function<Tensors()>& run) {
  try {
    return run();
  } catch (const std::exception& error) {
    const auto* const with_places = dynamic_cast<const c10::Error*>(&error);
    if (dynamic_cast<const Error*>(&error) != nullptr ||
        (with_places != nullptr && !with_places->context().empty())) {
      throw;
    }
    rethrow_at(lockstep::str("in ", text_of(options),
                             leaves.empty() ? "" : ", arguments " + forms_of(leaves)));
  }
}

// A differentiated tensor: gradients leave the replicas' graphs at `inside`, and go on `outside`.
struct Port {
  std::vector<Edge> inside;              // by replica; not valid where the replica does not use it
  std::vector<Edge> outside;             // by part
  std::vector<std::size_t> part_of;      // by replica
  std::vector<std::string> shared_over;  // as in MapInput
  Tensor like;            // a shared tensor's: zeros of its shape stand for no gradient
  bool captured = false;  // captured by the function, instead of an argument
};

// A map that has run and can be differentiated.
struct Recorded {
  Recorded(MapCall call, std::size_t replicas)
      : options(std::move(call)), results(replicas), graphs(replicas), places(replicas) {}

  MapCall options;
  std::vector<Port> ports;
  std::vector<std::uint64_t> map_calls;    // of the replicas' levels
  std::vector<tree::AxisSet> result_axes;  // the axes over which each result varies, with check_vma
  // By replica:
  Identities identities;
  std::vector<Tensors> results;  // with their graphs
  std::vector<OwnGraph> graphs;
  std::vector<std::vector<std::int64_t>> places;           // along each axis
  std::vector<std::shared_ptr<tree::Variance>> variances;  // with check_vma: its tensors' axes
};

std::vector<Tensors> attach(Recorded recorded);

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
  Recorded recorded_;
  std::shared_ptr<const int> caller_;  // the replica that called the map, if one did
  std::uint64_t runs_ = 0;
};

// Returns the call with the inputs that the map is differentiated by.
MapCall differentiated_by(MapCall options, const std::vector<MapInput>& inputs) {
  const auto leaves = filtered(consecutive(std::size_t{0}, inputs.size()), [&](std::size_t i) {
    return std::ranges::any_of(inputs[i].parts, is_differentiable);
  });
  if (!leaves.empty()) {
    options.differentiated =
        lockstep::str("differentiated by ", leaves.size() == 1 ? "leaf " : "leaves ", join(leaves),
                      " of its arguments");
  }
  return options;
}

// Returns the call of a map's `run`-th backward, whose own number follows from the map's.
MapCall call_of_backward(const Recorded& forward, std::uint64_t run, bool differentiated) {
  Key key = Key(run).fold("backward");
  for (const std::uint64_t map_call : forward.map_calls) key = key.fold(map_call);
  MapCall options = forward.options;
  const auto& before = forward.options.backward;
  // Maps are counted in the upper bits of their calls: see Environment::next_map_call.
  options.backward =
      BackwardCall{key.bits() | 1, before ? before->number : forward.map_calls.back() / 2,
                   before ? before->times + 1 : 1};
  options.differentiated = differentiated ? "differentiated" : "";
  return options;
}

void check_real(const MapCall& options, const Tensors& results) {
  for (std::size_t k = 0; k < results.size(); ++k) {
    if (!results[k].defined() || !results[k].is_complex() || !results[k].requires_grad()) continue;
    throw ValueError(lockstep::str(text_of(options), ": leaf ", k, " of the result is ",
                                   at::toString(results[k].scalar_type()),
                                   " and requires a gradient; maps are differentiated in real "
                                   "numbers: use view_as_real"));
  }
}

// Notes before a replica begins: its place, the first of its nodes, and the map's call.
void note_place(Recorded& recorded, const ReplicaThread& place) {
  const std::vector<AxisLevel>& levels = place.environment->levels();
  for (std::size_t axis = 0; axis < levels.back().axes.size(); ++axis) {
    recorded.places[static_cast<std::size_t>(place.local)].push_back(levels.back().index(axis));
  }
  recorded.graphs[static_cast<std::size_t>(place.local)].nodes.push_back(
      {at::RecordFunction::currentThreadId(), next_node(), next_node()});
  if (place.local != 0) return;
  for (const AxisLevel& level : levels) recorded.map_calls.push_back(level.map_call);
}

// Returns `tensor` as a start of the replica's graph. Its gradient leaves the graph by the port.
Tensor start_graph(Recorded& recorded, std::size_t port, std::size_t replica,
                   const Tensor& tensor) {
  Tensor start = tensor.detach().requires_grad_();
  Edge& inside = recorded.ports[port].inside[replica];
  inside = gradient_edge(start);
  recorded.graphs[replica].inputs.insert(inside.function.get());
  return start;
}

// Ends a replica's graph at its results. Called in the replica's thread.
void end_graph(Recorded& recorded, std::size_t replica) {
  OwnGraph& graph = recorded.graphs[replica];
  graph.nodes.back().end = next_node();
  graph.cut_off(recorded.results[replica]);
  if (replica != 0 || !recorded.options.check_vma) return;
  for (const Tensor& result : recorded.results[0]) {
    recorded.result_axes.push_back(recorded.variances[0]->of(result));
  }
}

void add_captured(Recorded& recorded) {
  const std::size_t replicas = recorded.graphs.size();
  const auto all_axes = names_of(recorded.options).names();
  for (std::size_t r = 0; r < replicas; ++r) {
    for (const CapturedEnd& captured : recorded.graphs[r].captured) {
      const auto is_its = [&](const Port& port) {
        return port.captured && port.outside[0] == captured.outside;
      };
      auto known = std::ranges::find_if(recorded.ports, is_its);
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

// Returns true if the first replica that shares the port is here, where its sum is differentiated.
bool counts_here(const Recorded& recorded, const Port& port) {
  const std::vector<std::int64_t>& first = recorded.places[0];
  return std::ranges::all_of(port.shared_over, [&](const std::string& name) {
    const auto axis = std::ranges::find(recorded.options.axes, name, &NamedAxis::name);
    return first[static_cast<std::size_t>(axis - recorded.options.axes.begin())] == 0;
  });
}

// Refuses captured tensors in a job: their positions do not match from member to member.
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

Tensor or_zeros(const Tensor& gradient, const Tensor& like) {
  return gradient.defined() || !like.defined() ? gradient : at::zeros_like(like).detach();
}

// Returns the map as the call whose backward calls collectives over these axes.
collectives::ForwardCall forward_over(const Recorded& recorded,
                                      const std::vector<std::string>& axes) {
  const MapCall& options = recorded.options;
  return {{options.map, AxisNames(axes), options.where}, 0, text_of(options)};
}

// Makes one sum for all gradients that are shared over the same axes.
void sum_shared(const Recorded& recorded, Tensors& gradients) {
  std::map<std::vector<std::string>, std::vector<std::size_t>> by_axes;
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    const auto& over = recorded.ports[p].shared_over;
    if (!over.empty()) by_axes[over].push_back(p);
  }
  for (const auto& [over, ports] : by_axes) {
    const Tensors operands = mapped(
        ports, [&](std::size_t p) { return or_zeros(gradients[p], recorded.ports[p].like); });
    const collectives::ForwardCall map = forward_over(recorded, over);
    const collectives::BackwardOf backward(map);
    const Tensors sums = collectives::reduce_leaves({"psum", map.call.axes, map.call.where},
                                                    operands, collectives::Reduction::sum, {});
    for (std::size_t i = 0; i < ports.size(); ++i) gradients[ports[i]] = sums[i];
  }
}

// Returns, for each replica, the number of its part of a value that varies over `axes`, from 0.
std::vector<std::size_t> sharers(const Recorded& recorded, tree::AxisSet axes) {
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

// A shared result is one value: all replicas that share it begin with the first one's gradient.
void share_starts(const Recorded& recorded, std::size_t replica, Tensors& starts) {
  tree::Variance& variance = *recorded.variances[replica];
  std::map<tree::AxisSet, std::vector<std::size_t>> by_axes;
  for (std::size_t k = 0; k < starts.size(); ++k) {
    if (is_differentiable(recorded.results[replica][k])) {
      by_axes[recorded.result_axes[k]].push_back(k);
    }
  }
  const c10::AutoGradMode no_grad(false);
  for (const auto& [axes, indices] : by_axes) {
    Tensors shared = mapped(indices, [&](std::size_t k) { return starts[k].detach(); });
    if (const tree::AxisSet over = variance.all() & ~axes; over != 0) {
      const tree::Untracked untracked;
      const collectives::ForwardCall map = forward_over(recorded, variance.names_of(over));
      const collectives::BackwardOf backward(map);
      shared =
          collectives::pbroadcast_leaves({"pbroadcast", map.call.axes, map.call.where}, shared, 0);
    }
    for (std::size_t i = 0; i < indices.size(); ++i) {
      starts[indices[i]] = variance.alias(shared[i], axes);
    }
  }
}

// Lets each gradient vary over the axes of its input; throws ValueError if it varies over more.
void type_gradients(const Recorded& recorded, std::size_t replica, Tensors& gradients) {
  const tree::Variance& variance = *recorded.variances[replica];
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    if (!gradients[p].defined()) continue;
    const tree::AxisSet axes = variance.all() & ~variance.set_of(recorded.ports[p].shared_over);
    if (const tree::AxisSet more = variance.of(gradients[p]) & ~axes; more != 0) {
      throw ValueError(lockstep::str(
          "the backward of ", text_of(recorded.options), ": the gradient by ",
          recorded.ports[p].captured ? "a captured tensor" : "an argument", " of shape ",
          gradients[p].sizes(), " varies over ", AxisNames(variance.names_of(more)).text(),
          ", over which it does not: a function with a derivative of its own "
          "(torch::autograd::Function) used it with what varies; pvary it before"));
    }
    gradients[p] = collectives::varying_over(axes, {gradients[p]})[0];
  }
}

Tensors backward_of_replica(Recorded& recorded, std::size_t replica, const Tensors& starts,
                            bool create_graph) {
  torch::autograd::edge_list roots;
  variable_list root_gradients;
  for (std::size_t k = 0; k < starts.size(); ++k) {
    const Tensor& result = recorded.results[replica][k];
    if (!is_differentiable(result)) continue;
    roots.push_back(recorded.graphs[replica].end_of(gradient_edge(result)));
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
  if (recorded.options.check_vma) {
    type_gradients(recorded, replica, gradients);
  } else {
    sum_shared(recorded, gradients);
  }
  return gradients;
}

// Returns the gradients of result k as an input: each replica's own, or one for all that share it.
Port start_port(const Recorded& recorded, const std::vector<Tensors>& starts, std::size_t k) {
  const std::size_t replicas = starts.size();
  Port port{std::vector<Edge>(replicas), {}, {}, {}, {}, false};
  if (recorded.options.check_vma) {
    const tree::Variance& variance = *recorded.variances[0];
    port.part_of = sharers(recorded, recorded.result_axes[k]);
    port.shared_over = variance.names_of(variance.all() & ~recorded.result_axes[k]);
  } else {
    port.part_of = consecutive(std::size_t{0}, replicas);
  }
  for (std::size_t r = 0; r < replicas; ++r) {
    if (port.part_of[r] < port.outside.size()) continue;  // the first that shares it has it
    const bool follows =
        is_differentiable(recorded.results[r][k]) && is_differentiable(starts[r][k]);
    port.outside.push_back(follows ? gradient_edge(starts[r][k]) : Edge());
  }
  return port;
}

variable_list MapBackward::apply(variable_list&& gradients) {
  const auto title = [&] {
    return str("the backward of ", recorded_.options.map, " over ",
               names_of(recorded_.options).text());
  };
  if (recorded_.results.empty()) {
    throw ValueError(title() + " ran before; keep its graph (retain_graph) to run it again");
  }
  if (current_identity() != caller_) {
    throw NameError(title() + " runs in another replica or map than the one that called it");
  }
  refuse_captured(recorded_);
  const bool create_graph = c10::GradMode::is_enabled();
  const std::size_t replicas = recorded_.results.size();
  std::vector<Tensors> starts(replicas);
  auto gradient = gradients.begin();
  for (std::size_t r = 0; r < replicas; ++r) {
    for (const Tensor& result : recorded_.results[r]) {
      starts[r].push_back(or_zeros(*gradient++, result));
    }
  }

  Recorded second(call_of_backward(recorded_, ++runs_, create_graph), replicas);
  second.identities = recorded_.identities;
  second.variances = recorded_.variances;
  const std::size_t first_start = recorded_.ports.size();
  if (create_graph) {
    // The incoming gradients are inputs of the map's backward, too.
    second.ports = recorded_.ports;
    second.graphs = recorded_.graphs;
    for (std::size_t k = 0; k < starts[0].size(); ++k) {
      second.ports.push_back(start_port(recorded_, starts, k));
    }
  }
  run_replica_threads(
      second.options,
      [&](const ReplicaThread& place) {
        const auto r = static_cast<std::size_t>(place.local);
        note_place(second, place);
        std::optional<tree::VarianceScope> tracked;
        if (second.options.check_vma) {
          tracked.emplace(*recorded_.variances[r]);
          share_starts(recorded_, r, starts[r]);
        }
        for (std::size_t k = 0; create_graph && k < starts[r].size(); ++k) {
          // Started also if no gradient came in: replicas must agree on the differentiated inputs.
          if (is_differentiable(recorded_.results[r][k])) {
            starts[r][k] = start_graph(second, first_start + k, r, starts[r][k]);
          }
        }
        second.results[r] = backward_of_replica(recorded_, r, starts[r], create_graph);
        if (create_graph) end_graph(second, r);
      },
      second.identities);

  const auto results = attach(std::move(second));
  variable_list outside;
  for (std::size_t p = 0; p < recorded_.ports.size(); ++p) {
    const auto& part_of = recorded_.ports[p].part_of;
    for (std::size_t part = 0; part < recorded_.ports[p].outside.size(); ++part) {
      // All replicas that share the part have the same gradient.
      const auto holder = std::ranges::find(part_of, part) - part_of.begin();
      const Tensor& whole = results[static_cast<std::size_t>(holder)][p];
      const bool counts = counts_here(recorded_, recorded_.ports[p]);
      outside.push_back(counts ? whole : counted_elsewhere(whole));
    }
  }
  return outside;
}

// Returns the results as tensors of the caller's graph, in which one node stands for the whole map.
std::vector<Tensors> attach(Recorded recorded) {
  std::vector<Tensors> outside = recorded.results;
  bool any = false;
  for (Tensors& results : outside) {
    for (Tensor& result : results) {
      any |= is_differentiable(result);
      if (result.defined()) result = result.detach();
    }
  }
  if (!any || !c10::GradMode::is_enabled()) return outside;

  add_captured(recorded);
  torch::autograd::edge_list next;
  for (const Port& port : recorded.ports) {
    next.insert(next.end(), port.outside.begin(), port.outside.end());
  }
  const std::vector<Tensors> inside = recorded.results;
  const auto node = collectives::make_node<MapBackward>(std::move(recorded), current_identity());
  node->set_next_edges(std::move(next));
  for (std::size_t r = 0; r < outside.size(); ++r) {
    for (std::size_t k = 0; k < outside[r].size(); ++k) {
      if (is_differentiable(inside[r][k])) {
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
  if (tree::current_variance() != nullptr) {
    throw ValueError(text_of(options) +
                     ": a map in a replica of a shard_map with check_vma is not followed; call it "
                     "in a shard_map without, or write out what it does");
  }
  const auto replicas = static_cast<std::size_t>(options.replicas);
  const bool recording = c10::GradMode::is_enabled();
  Recorded recorded(recording ? differentiated_by(options, inputs) : options, replicas);
  recorded.identities.resize(replicas);
  recorded.variances.resize(replicas);
  for (const MapInput& input : inputs) {
    Port port{
        std::vector<Edge>(replicas), {}, input.part_of, input.shared_over, input.parts[0], false};
    for (const Tensor& part : input.parts) {
      port.outside.push_back(recording && is_differentiable(part) ? gradient_edge(part) : Edge());
    }
    recorded.ports.push_back(std::move(port));
  }
  if (options.check_vma) collectives::track_operations();
  run_replica_threads(recorded.options, [&](const ReplicaThread& place) {
    const auto r = static_cast<std::size_t>(place.local);
    note_place(recorded, place);
    recorded.identities[r] = place.environment->identity();
    std::optional<tree::VarianceScope> tracked;
    if (options.check_vma) {
      recorded.variances[r] =
          std::make_shared<tree::Variance>(names_of(options).names(), options.where);
      tracked.emplace(*recorded.variances[r]);
    }
    Tensors leaves;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensor part = inputs[i].parts[inputs[i].part_of[r]];
      const bool differentiable = recording && is_differentiable(part);
      if (tracked) {
        tree::Variance& variance = *recorded.variances[r];
        part = variance.alias(part, variance.all() & ~variance.set_of(inputs[i].shared_over));
      }
      leaves.push_back(differentiable ? start_graph(recorded, i, r, part) : part);
    }
    recorded.results[r] = run_placed(options, leaves, [&] { return body(place, leaves); });
    if (!recording) return;
    check_real(options, recorded.results[r]);
    end_graph(recorded, r);
  });
  // Inputs without a gradient are no ports.
  std::erase_if(recorded.ports, [](const Port& port) {
    return std::ranges::none_of(port.outside, [](const Edge& edge) { return edge.is_valid(); });
  });
  return attach(std::move(recorded));
}

}  // namespace lockstep::maps
