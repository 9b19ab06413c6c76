#include <utility>
#include <vector>

#include "framework/maps/shard_map.h"
#include "tests/jax/replay.h"

namespace lockstep::testing {
namespace {

std::vector<PartitionSpec> specs_of(const std::vector<Step::Spec>& specs) {
  return {specs.begin(), specs.end()};
}

}  // namespace

Meanings shard_map_steps() {
  return {{"shard_map", [](const Step& step, const Values& values) {
             const auto in = specs_of(step.in_specs);
             const auto out = specs_of(step.out_specs);
             return run_map(step, values, out.size() > 1, [&](auto function) {
               return shard_map(std::move(function), Mesh(step.mesh), in, out,
                                {.check_vma = step.check_vma});
             });
           }}};
}

}  // namespace lockstep::testing
