#include "framework/maps/vmap.h"
#include "tests/jax/replay.h"
#include "tests/jax/replay_axes.h"

namespace lockstep::testing {

Meanings vmap_steps() {
  return {{"vmap", [](const Step& step, const Values& values) {
             return run_map(step, values, !step.out_for_all, [&](auto function) {
               return vmap(std::move(function), {.axis_name = step.axis.at(0),
                                                 .in_axes = in_axes_of(step),
                                                 .out_axes = out_axes_of(step),
                                                 .axis_size = step.size});
             });
           }}};
}

}  // namespace lockstep::testing
