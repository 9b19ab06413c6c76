#include "framework/collectives/all_to_all.h"
#include "framework/collectives/pargmax.h"
#include "framework/collectives/pbroadcast.h"
#include "framework/collectives/ppermute.h"
#include "framework/collectives/ragged_all_to_all.h"
#include "tests/jax/replay.h"

namespace lockstep::testing {
namespace {

Values ragged(const Step& step, const Values& values) {
  const auto operand = [&](std::size_t i) -> const Tensor& { return values.at(step.x.at(i)); };
  return {ragged_all_to_all(operand(0), operand(1), operand(2), operand(3), operand(4), operand(5),
                            axis_of(step), {.axis_index_groups = step.groups})};
}

}  // namespace

Meanings exchanges() {
  return {
      {"all_to_all", on_trees([](const Step& step, const auto& x) {
         return all_to_all(x, axis_of(step), step.split, step.concat,
                           {.tiled = step.tiled, .axis_index_groups = step.groups});
       })},
      {"ragged_all_to_all", ragged},
      {"ppermute", on_trees([](const Step& step, const auto& x) {
         return ppermute(x, axis_of(step), step.pairs);
       })},
      {"pshuffle", on_trees([](const Step& step, const auto& x) {
         return pshuffle(x, axis_of(step), step.sources);
       })},
      {"pswapaxes", on_trees([](const Step& step, const auto& x) {
         return pswapaxes(x, axis_of(step), step.dimension, {.axis_index_groups = step.groups});
       })},
      {"pbroadcast", on_trees([](const Step& step, const auto& x) {
         return pbroadcast(x, axis_of(step), step.source);
       })},
      {"pargmax",
       on_trees([](const Step& step, const auto& x) { return pargmax(x, axis_of(step)); })},
      {"pargmin",
       on_trees([](const Step& step, const auto& x) { return pargmin(x, axis_of(step)); })},
  };
}

}  // namespace lockstep::testing
