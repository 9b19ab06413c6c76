#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

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
#include "tests/collectives/cases.h"
#include "tests/collectives/property_cases.h"

namespace lockstep::testing {
namespace {

Sizes random_sizes(Draw& draw, std::int64_t least_dimensions) {
  Sizes sizes(static_cast<std::size_t>(draw.between(least_dimensions, 4)));
  constexpr std::array<std::int64_t, 5> kLongest{1, 2000, 45, 12, 6};
  for (auto& size : sizes) size = draw.between(1, kLongest[sizes.size()]);
  if (!sizes.empty() && draw.between(0, 7) == 0) sizes.back() = 0;
  if (sizes.size() > 1 && draw.between(0, 7) == 0) sizes.front() = 0;
  return sizes;
}

Sizes any_sizes(Draw& draw) {
  return random_sizes(draw, 0);
}

std::int64_t group_size(const AxisIndexGroups& groups, const OperationAxis& axis) {
  return groups.empty() ? axis.replicas : static_cast<std::int64_t>(groups[0].size());
}

// Draws sizes of at least `dimensions` dimensions, whose `dimension` so many replicas can cut.
auto cut_sizes(std::int64_t dimensions, std::int64_t dimension, bool tiled, std::int64_t replicas) {
  return [=](Draw& draw) {
    Sizes sizes = random_sizes(draw, dimensions);
    const auto rank = static_cast<std::int64_t>(sizes.size());
    const std::int64_t pieces = tiled ? draw.between(0, rank == 1 ? 250 : 3) : 1;
    sizes[static_cast<std::size_t>(dimension + (dimension < 0 ? rank : 0))] = pieces * replicas;
    return sizes;
  };
}

Operation reduction(Draw& draw, const OperationAxis& axis) {
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

Operation gather(Draw& draw, const OperationAxis& axis) {
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

// psum_scatter, or the psum that it makes with an all_gather.
Operation scatter(Draw& draw, const OperationAxis& axis) {
  PsumScatterOptions options{.axis_index_groups = random_groups(draw, axis.replicas, true)};
  options.tiled = draw.coin();
  const std::int64_t dimensions = draw.between(1, 4);
  options.scatter_dimension = draw.between(-dimensions, dimensions - 1);
  const bool gathers = draw.coin();
  Operation operation{lockstep::str(gathers ? "all_gather of " : "", "psum_scatter of ",
                                    options.scatter_dimension, options.tiled ? " tiled" : "",
                                    " in groups ", text_of(options.axis_index_groups)),
                      options.axis_index_groups};
  operation.sizes = cut_sizes(dimensions, options.scatter_dimension, options.tiled,
                              group_size(options.axis_index_groups, axis));
  operation.call = [=](const Tensors& x, const Key&, std::size_t) {
    const Tensors pieces = psum_scatter(x, axis.names, options);
    if (!gathers) return pieces;
    return all_gather(pieces, axis.names,
                      {.axis = options.scatter_dimension,
                       .tiled = options.tiled,
                       .axis_index_groups = options.axis_index_groups});
  };
  operation.oracle = [=](const Tensors& values, const Key&, std::size_t place) {
    if (gathers) return oracle_psum(values);
    return oracle_psum_scatter(values, place, options.scatter_dimension, options.tiled);
  };
  return operation;
}

// all_to_all, also there and back, or pswapaxes.
Operation exchange(Draw& draw, const OperationAxis& axis) {
  AllToAllOptions options{.axis_index_groups = random_groups(draw, axis.replicas, true)};
  const bool swap = draw.between(0, 2) == 0;
  options.tiled = !swap && draw.coin();
  const std::int64_t dimensions = draw.between(1, 4);
  const std::int64_t split = draw.between(-dimensions, dimensions - 1);
  const std::int64_t concat = swap ? split : draw.between(-dimensions, dimensions - 1);
  const bool returns = !swap && draw.coin();
  Operation operation{
      lockstep::str(swap ? "pswapaxes" : "all_to_all", " of ", split, " to ", concat,
                    returns ? " and back" : "", options.tiled ? " tiled" : "", " in groups ",
                    text_of(options.axis_index_groups)),
      options.axis_index_groups};
  operation.sizes =
      cut_sizes(dimensions, split, options.tiled, group_size(options.axis_index_groups, axis));
  operation.call = [=](const Tensors& x, const Key&, std::size_t) {
    if (swap) return pswapaxes(x, axis.names, split, {options.axis_index_groups});
    const Tensors moved = all_to_all(x, axis.names, split, concat, options);
    return returns ? all_to_all(moved, axis.names, concat, split, options) : moved;
  };
  operation.oracle = [=](const Tensors& values, const Key&, std::size_t place) {
    if (returns) return values[place];
    return oracle_all_to_all(values, place, split, concat, options.tiled);
  };
  return operation;
}

// ppermute, pshuffle or pbroadcast.
Operation move(Draw& draw, const OperationAxis& axis) {
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

Operation extremum(Draw& draw, const OperationAxis& axis) {
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
Operation index_and_size(Draw& draw, const OperationAxis& axis) {
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

// The pieces that the replicas of a group send each other: up to three rows each, from anywhere in
// operands of `rows`. In the outputs they lie in random order with gaps between them.
struct RaggedPieces {
  std::int64_t rows;
  std::int64_t pieces;  // a pair of replicas
  std::int64_t replicas;

  std::int64_t slots() const { return replicas * pieces; }
  std::int64_t output_rows() const { return 4 * slots() + 2; }

  std::vector<RaggedNumbers> tables(Draw& draw) const {
    const auto length = static_cast<std::size_t>(slots());
    std::vector<RaggedNumbers> tables(static_cast<std::size_t>(replicas));
    for (RaggedNumbers& table : tables) {
      table.recv_sizes.resize(length);
      table.output_offsets.resize(length);
      for (std::size_t slot = 0; slot < length; ++slot) {
        table.send_sizes.push_back(draw.between(0, std::min<std::int64_t>(rows, 3)));
        table.input_offsets.push_back(draw.between(0, rows - table.send_sizes.back()));
      }
    }
    for (std::int64_t receiver = 0; receiver < replicas; ++receiver) {
      std::int64_t next = draw.between(0, 2);
      for (const std::int64_t there : permutation(Key(draw.bits()), slots())) {
        RaggedNumbers& sender = tables[static_cast<std::size_t>(there / pieces)];
        const auto slot = static_cast<std::size_t>(receiver * pieces + there % pieces);
        const std::int64_t size = sender.send_sizes[slot];
        tables[static_cast<std::size_t>(receiver)].recv_sizes[static_cast<std::size_t>(there)] =
            size;
        sender.output_offsets[slot] = next;
        next += size + draw.between(0, 1);
      }
    }
    return tables;
  }
};

// Returns the tables of a group, whose replicas draw alike.
std::vector<RaggedNumbers> tables_of(const RaggedPieces& pieces, const Key& group) {
  Draw draw(group.fold("tables"));
  return pieces.tables(draw);
}

// Returns an output for each operand, with values that are drawn by the operand's.
Tensor output_for(const RaggedPieces& pieces, const Tensor& operand) {
  auto sizes = operand.sizes().vec();
  sizes[0] = pieces.output_rows();
  Draw draw(Key(digest_of({operand.resolve_neg().contiguous()})));
  return random_tensor(draw, sizes, operand.scalar_type());
}

Operation ragged_exchange(Draw& draw, const OperationAxis& axis) {
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
    for (const Tensor& leaf : x) outputs.push_back(output_for(pieces, leaf));
    const auto tensor = [&](const std::vector<std::int64_t>& values) {
      return at::tensor(values, at::kLong).to(type);
    };
    Tensors results =
        ragged_all_to_all(x, outputs, tensor(own.input_offsets), tensor(own.send_sizes),
                          tensor(own.output_offsets), tensor(own.recv_sizes), axis.names, options);
    for (std::size_t leaf = 0; leaf < x.size(); ++leaf) {
      expect(same_bits(outputs[leaf], output_for(pieces, x[leaf])) &&
                 !results[leaf].is_alias_of(outputs[leaf]),
             "the output was changed, or is the result");
    }
    return results;
  };
  operation.oracle = [pieces](const Tensors& values, const Key& group, std::size_t place) {
    return oracle_ragged_all_to_all(values, output_for(pieces, values[place]),
                                    tables_of(pieces, group), place);
  };
  return operation;
}

constexpr std::array<OperationKind, 8> kKinds{{{"psum, pmean, pmax and pmin", 4, reduction},
                                               {"all_gather", 1, gather},
                                               {"psum_scatter", 2, scatter},
                                               {"all_to_all and pswapaxes", 3, exchange},
                                               {"ppermute, pshuffle and pbroadcast", 3, move},
                                               {"pargmax and pargmin", 2, extremum},
                                               {"axis_index and axis_size", 1, index_and_size},
                                               {"ragged_all_to_all", 1, ragged_exchange}}};

}  // namespace

std::span<const OperationKind> operation_kinds() {
  return kKinds;
}

Operation random_operation(Draw& draw, const OperationAxis& axis) {
  std::vector<const OperationKind*> by_weight;
  for (const OperationKind& kind : kKinds) by_weight.insert(by_weight.end(), kind.weight, &kind);
  const auto which = draw.between(0, static_cast<std::int64_t>(by_weight.size()) - 1);
  return by_weight[static_cast<std::size_t>(which)]->draw(draw, axis);
}

}  // namespace lockstep::testing
