#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/all_to_all.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/pargmax.h"
#include "framework/collectives/pbroadcast.h"
#include "framework/collectives/ppermute.h"
#include "framework/collectives/psum.h"
#include "framework/collectives/ragged_all_to_all.h"
#include "tests/collectives/property_cases.h"
#include "tests/collectives/random_round.h"

namespace lockstep::testing {
namespace {

// Over which replicas an operator is drawn.
struct Axis {
  AxisNames names;
  std::int64_t replicas;
};

Sizes any_sizes(Draw& draw) {
  return random_sizes(draw, 0);
}

std::int64_t group_size(const AxisIndexGroups& groups, const Axis& axis) {
  return groups.empty() ? axis.replicas : static_cast<std::int64_t>(groups[0].size());
}

// Sizes of at least `dimensions` dimensions, of which `dimension` suits `replicas` that cut it.
auto cut_sizes(std::int64_t dimensions, std::int64_t dimension, bool tiled, std::int64_t replicas) {
  return [=](Draw& draw) {
    Sizes sizes = random_sizes(draw, dimensions);
    const auto rank = static_cast<std::int64_t>(sizes.size());
    const std::int64_t pieces = tiled ? draw.between(0, 3) : 1;
    sizes[static_cast<std::size_t>(dimension + (dimension < 0 ? rank : 0))] = pieces * replicas;
    return sizes;
  };
}

Operation reduction(Draw& draw, const Axis& axis) {
  const ReduceOptions options{random_groups(draw, axis.replicas, /*equal_sizes=*/false)};
  const std::int64_t which = draw.between(0, 3);
  constexpr std::array kNames{"psum", "pmean", "pmax", "pmin"};
  Operation operation{lockstep::str(kNames[static_cast<std::size_t>(which)], " in groups ",
                                    text_of(options.axis_index_groups)),
                      options.axis_index_groups, any_sizes};
  operation.by_value = which >= 2;
  operation.call = [axis, options, which](const Tensors& x, const Key&, std::size_t) {
    if (which == 0) return psum(x, axis.names, options);
    if (which == 1) return pmean(x, axis.names, options);
    return which == 2 ? pmax(x, axis.names, options) : pmin(x, axis.names, options);
  };
  operation.oracle = [which](const Tensors& values, const Key&, std::size_t) {
    if (which == 0) return oracle_psum(values);
    if (which == 1) return oracle_pmean(values);
    return which == 2 ? oracle_pmax(values) : oracle_pmin(values);
  };
  return operation;
}

Operation gather(Draw& draw, const Axis& axis) {
  AllGatherOptions options{.axis_index_groups = random_groups(draw, axis.replicas, true)};
  options.tiled = draw.coin();
  const std::int64_t dimensions = draw.between(options.tiled ? 1 : 0, 4);
  const std::int64_t range = dimensions + (options.tiled ? 0 : 1);
  options.axis = draw.between(-range, range - 1);
  Operation operation{lockstep::str("all_gather at ", options.axis, options.tiled ? " tiled" : "",
                                    " in groups ", text_of(options.axis_index_groups)),
                      options.axis_index_groups};
  operation.sizes = [dimensions](Draw& own) { return random_sizes(own, dimensions); };
  operation.call = [axis, options](const Tensors& x, const Key&, std::size_t) {
    return all_gather(x, axis.names, options);
  };
  operation.oracle = [options](const Tensors& values, const Key&, std::size_t) {
    return oracle_all_gather(values, options.axis, options.tiled);
  };
  return operation;
}

Operation scatter(Draw& draw, const Axis& axis) {
  PsumScatterOptions options{.axis_index_groups = random_groups(draw, axis.replicas, true)};
  options.tiled = draw.coin();
  const std::int64_t dimensions = draw.between(1, 4);
  options.scatter_dimension = draw.between(-dimensions, dimensions - 1);
  Operation operation{
      lockstep::str("psum_scatter of ", options.scatter_dimension, options.tiled ? " tiled" : "",
                    " in groups ", text_of(options.axis_index_groups)),
      options.axis_index_groups};
  operation.sizes = cut_sizes(dimensions, options.scatter_dimension, options.tiled,
                              group_size(options.axis_index_groups, axis));
  operation.call = [axis, options](const Tensors& x, const Key&, std::size_t) {
    return psum_scatter(x, axis.names, options);
  };
  operation.oracle = [options](const Tensors& values, const Key&, std::size_t place) {
    return oracle_psum_scatter(values, place, options.scatter_dimension, options.tiled);
  };
  return operation;
}

// all_to_all, or pswapaxes.
Operation exchange(Draw& draw, const Axis& axis) {
  AllToAllOptions options{.axis_index_groups = random_groups(draw, axis.replicas, true)};
  const bool swap = draw.between(0, 2) == 0;
  options.tiled = !swap && draw.coin();
  const std::int64_t dimensions = draw.between(1, 4);
  const std::int64_t split = draw.between(-dimensions, dimensions - 1);
  const std::int64_t concat = swap ? split : draw.between(-dimensions, dimensions - 1);
  Operation operation{lockstep::str(swap ? "pswapaxes" : "all_to_all", " of ", split, " to ",
                                    concat, options.tiled ? " tiled" : "", " in groups ",
                                    text_of(options.axis_index_groups)),
                      options.axis_index_groups};
  operation.sizes =
      cut_sizes(dimensions, split, options.tiled, group_size(options.axis_index_groups, axis));
  operation.call = [=](const Tensors& x, const Key&, std::size_t) {
    if (swap) return pswapaxes(x, axis.names, split, {options.axis_index_groups});
    return all_to_all(x, axis.names, split, concat, options);
  };
  operation.oracle = [=](const Tensors& values, const Key&, std::size_t place) {
    return oracle_all_to_all(values, place, split, concat, options.tiled);
  };
  return operation;
}

// ppermute, pshuffle or pbroadcast.
Operation move(Draw& draw, const Axis& axis) {
  const auto sources = permutation(Key(draw.bits()), axis.replicas);
  const std::int64_t which = draw.between(0, 2);
  if (which == 2) {
    const std::int64_t source = sources[0];
    return {lockstep::str("pbroadcast from ", source),
            {},
            any_sizes,
            [=](const Tensors& x, const Key&, std::size_t) {
              return pbroadcast(x, axis.names, source);
            },
            [=](const Tensors& values, const Key&, std::size_t) {
              return values[static_cast<std::size_t>(source)];
            }};
  }
  SourceDestinationPairs perm;
  for (const std::int64_t to : permutation(Key(draw.bits()), axis.replicas)) {
    if (which == 1 || draw.coin()) perm.emplace_back(sources[static_cast<std::size_t>(to)], to);
  }
  return {lockstep::str(which == 1 ? "pshuffle" : "ppermute", " from ", join(sources), ", ",
                        perm.size(), " of them"),
          {},
          any_sizes,
          [=](const Tensors& x, const Key&, std::size_t) {
            return which == 1 ? pshuffle(x, axis.names, sources) : ppermute(x, axis.names, perm);
          },
          [=](const Tensors& values, const Key&, std::size_t place) {
            return oracle_ppermute(values, place, perm);
          }};
}

Operation extremum(Draw& draw, const Axis& axis) {
  const bool largest = draw.coin();
  return {largest ? "pargmax" : "pargmin",
          {},
          any_sizes,
          [=](const Tensors& x, const Key&, std::size_t) {
            return largest ? pargmax(x, axis.names) : pargmin(x, axis.names);
          },
          [=](const Tensors& values, const Key&, std::size_t) {
            return largest ? oracle_pargmax(values) : oracle_pargmin(values);
          }};
}

// axis_index, axis_size and psum of a number, as tensors.
Operation index_and_size(Draw& draw, const Axis& axis) {
  const ReduceOptions options{random_groups(draw, axis.replicas, /*equal_sizes=*/false)};
  return {lockstep::str("axis_index, axis_size and psum(3) in groups ",
                        text_of(options.axis_index_groups)),
          options.axis_index_groups, any_sizes,
          [=](const Tensors& x, const Key&, std::size_t) {
            const std::int64_t own = axis_index(axis.names);
            // group_of() finds the own place by the index: a wrong one is seen.
            const auto members = group_of(options.axis_index_groups, own, axis.replicas);
            const auto place = std::find(members.begin(), members.end(), own) - members.begin();
            const std::int64_t threes = psum(3, axis.names, options);
            const Tensor got =
                at::tensor({std::int64_t{place}, axis_size(axis.names), threes}, at::kLong);
            Tensors results;
            for (std::size_t leaf = 0; leaf < x.size(); ++leaf) results.push_back(got.clone());
            return results;
          },
          [=](const Tensors& values, const Key&, std::size_t place) {
            return at::tensor({static_cast<std::int64_t>(place), axis.replicas,
                               3 * static_cast<std::int64_t>(values.size())},
                              at::kLong);
          }};
}

// The tables of a group, whose replicas draw alike.
std::vector<RaggedNumbers> tables_of(const RaggedPieces& pieces, const Key& group) {
  Draw draw(group.fold("tables"));
  return pieces.tables(draw);
}

Tensor output_for(const RaggedPieces& pieces, const Tensor& operand, std::size_t place) {
  auto sizes = operand.sizes().vec();
  sizes[0] = pieces.output_rows();
  return at::full(sizes, static_cast<std::int64_t>(place) % 2, operand.scalar_type());
}

Operation ragged_exchange(Draw& draw, const Axis& axis) {
  const RaggedAllToAllOptions options{random_groups(draw, axis.replicas, /*equal_sizes=*/true)};
  const RaggedPieces pieces{draw.between(0, 9), draw.between(1, 3),
                            group_size(options.axis_index_groups, axis)};
  const auto type = draw.coin() ? at::kInt : at::kLong;
  Operation operation{
      lockstep::str("ragged_all_to_all of ", pieces.pieces, " pieces of ", pieces.rows,
                    " rows in groups ", text_of(options.axis_index_groups)),
      options.axis_index_groups};
  operation.sizes = [pieces](Draw& own) {
    Sizes sizes = random_sizes(own, 1);
    for (auto& size : sizes) size = std::min<std::int64_t>(size, 12);
    sizes[0] = pieces.rows;
    return sizes;
  };
  operation.call = [=](const Tensors& x, const Key& group, std::size_t place) {
    const RaggedNumbers own = tables_of(pieces, group)[place];
    Tensors outputs;
    for (const Tensor& leaf : x) outputs.push_back(output_for(pieces, leaf, place));
    const auto tensor = [&](const std::vector<std::int64_t>& values) {
      return at::tensor(values, at::kLong).to(type);
    };
    return ragged_all_to_all(x, outputs, tensor(own.input_offsets), tensor(own.send_sizes),
                             tensor(own.output_offsets), tensor(own.recv_sizes), axis.names,
                             options);
  };
  operation.oracle = [pieces](const Tensors& values, const Key& group, std::size_t place) {
    return oracle_ragged_all_to_all(values, output_for(pieces, values[place], place),
                                    tables_of(pieces, group), place);
  };
  return operation;
}

}  // namespace

Operation random_operation(Draw& draw, const AxisNames& axes, std::int64_t replicas) {
  // Twice what stands for several operators.
  constexpr std::array kOperations{reduction, reduction,      gather,         scatter,
                                   exchange,  exchange,       move,           move,
                                   extremum,  index_and_size, ragged_exchange};
  const auto which = draw.between(0, static_cast<std::int64_t>(kOperations.size()) - 1);
  return kOperations[static_cast<std::size_t>(which)](draw, {axes, replicas});
}

}  // namespace lockstep::testing
