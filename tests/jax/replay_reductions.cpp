
#include "framework/collectives/all_gather.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/tree/variance.h"
#include "tests/jax/replay.h"

namespace lockstep::testing {
namespace {

ReduceOptions groups_of(const Step& step) {
  return {.axis_index_groups = step.groups};
}

}  // namespace

Meanings reductions() {
  return {
      {"psum", on_trees([](const Step& step, const auto& x) {
         return psum(x, axis_of(step), groups_of(step));
       })},
      {"pmean", on_trees([](const Step& step, const auto& x) {
         return pmean(x, axis_of(step), groups_of(step));
       })},
      {"pmax", on_trees([](const Step& step, const auto& x) {
         return pmax(x, axis_of(step), groups_of(step));
       })},
      {"pmin", on_trees([](const Step& step, const auto& x) {
         return pmin(x, axis_of(step), groups_of(step));
       })},
      {"all_gather", on_trees([](const Step& step, const auto& x) {
         return all_gather(
             x, axis_of(step),
             {.axis = step.dimension, .tiled = step.tiled, .axis_index_groups = step.groups});
       })},
      {"psum_scatter", on_trees([](const Step& step, const auto& x) {
         return psum_scatter(x, axis_of(step),
                             {.scatter_dimension = step.dimension,
                              .tiled = step.tiled,
                              .axis_index_groups = step.groups});
       })},
      {"pvary", on_trees([](const Step& step, const auto& x) { return pvary(x, axis_of(step)); })},
      {"psum_number",
       [](const Step& step, const Values&) -> Values {
         return {number(psum(step.number, axis_of(step), groups_of(step)), step.as)};
       }},
      {"axis_index",
       [](const Step& step, const Values&) -> Values {
         if (tree::current_variance() != nullptr)
           return {axis_index_tensor(axis_of(step)).to(step.as)};
         return {number(static_cast<double>(axis_index(axis_of(step))), step.as)};
       }},
      {"axis_size",
       [](const Step& step, const Values&) -> Values {
         return {number(static_cast<double>(axis_size(axis_of(step))), step.as)};
       }},
  };
}

}  // namespace lockstep::testing
