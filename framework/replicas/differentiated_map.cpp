#include "framework/replicas/differentiated_map.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/replicas/own_graph.h"

namespace lockstep {

using at::Tensor;

MapCall differentiated_by(MapCall options, const std::vector<MapInput>& inputs) {
  std::vector<std::size_t> leaves;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (std::any_of(inputs[i].parts.begin(), inputs[i].parts.end(), is_differentiable)) {
      leaves.push_back(i);
    }
  }
  if (!leaves.empty()) {
    options.differentiated =
        lockstep::str("differentiated by ", leaves.size() == 1 ? "leaf " : "leaves ", join(leaves),
                      " of its arguments");
  }
  return options;
}

MapCall call_of_backward(const MapCall& forward, const std::vector<std::uint64_t>& map_calls,
                         std::uint64_t run, bool differentiated) {
  Key key = Key(run).fold("backward");
  for (const std::uint64_t map_call : map_calls) key = key.fold(map_call);
  const auto& before = forward.backward;
  MapCall options = forward;
  // Maps are counted in the upper bits of their calls: see Environment::next_map_call.
  options.backward = BackwardCall{key.bits() | 1, before ? before->number : map_calls.back() / 2,
                                  before ? before->times + 1 : 1};
  options.differentiated = differentiated ? "differentiated" : "";
  return options;
}

void check_real(const MapCall& options, const std::vector<Tensor>& results) {
  for (std::size_t k = 0; k < results.size(); ++k) {
    if (!results[k].defined() || !results[k].is_complex() || !results[k].requires_grad()) continue;
    throw ValueError(lockstep::str(text_of(options), ": leaf ", k, " of the result is ",
                                   at::toString(results[k].scalar_type()),
                                   " and requires a gradient; maps are differentiated in real "
                                   "numbers: use view_as_real"));
  }
}

}  // namespace lockstep
