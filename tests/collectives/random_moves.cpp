#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/ops/tensor.h>

#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/collectives/all_to_all.h"
#include "framework/collectives/pargmax.h"
#include "framework/collectives/pbroadcast.h"
#include "framework/collectives/ppermute.h"
#include "framework/collectives/ragged_all_to_all.h"
#include "tests/collectives/cases.h"
#include "tests/collectives/oracle.h"
#include "tests/collectives/random_round.h"

namespace lockstep::testing {
namespace {

void all_to_alls(std::int64_t number) {
  Round round("all_to_all", number);
  AllToAllOptions options{.axis_index_groups = round.draw_groups(/*equal_sizes=*/true)};
  options.tiled = round.draw().coin();
  const std::int64_t dimensions = round.draw().between(1, 4);
  const std::int64_t split = round.draw().between(-dimensions, dimensions - 1);
  const std::int64_t concat = round.draw().between(-dimensions, dimensions - 1);
  round.note(lockstep::str("; split ", split, ", concat ", concat, options.tiled ? " tiled" : ""));
  round.draw_leaves([&] {
    Sizes sizes = random_sizes(round.draw(), dimensions);
    const auto rank = static_cast<std::int64_t>(sizes.size());
    const std::int64_t pieces = options.tiled ? round.draw().between(0, rank == 1 ? 250 : 3) : 1;
    sizes[static_cast<std::size_t>(split + (split < 0 ? rank : 0))] = pieces * round.group_size();
    return sizes;
  });
  const Tensors x = round.mine();
  const auto oracle = [&](std::int64_t to) {
    return [&options, &round, split, to](const Tensors& values) {
      return oracle_all_to_all(values, round.place(), split, to, options.tiled);
    };
  };
  const Tensors moved = all_to_all(x, "i", split, concat, options);
  round.check("all_to_all there and back", all_to_all(moved, "i", concat, split, options),
              [&](const Tensors& values) { return values[round.place()]; });
  round.check("all_to_all", moved, oracle(concat));
  if (options.tiled) return;
  round.check("pswapaxes",
              pswapaxes(x, "i", split, {.axis_index_groups = options.axis_index_groups}),
              oracle(split));
}

void along_the_axis(std::int64_t number) {
  Round round("ppermute", number);
  round.take_whole_axis();
  const std::int64_t replicas = round.replicas();
  const auto sources = permutation(Key(round.draw().bits()), replicas);
  SourceDestinationPairs perm;
  for (const std::int64_t destination : permutation(Key(round.draw().bits()), replicas)) {
    if (round.draw().coin()) {
      perm.emplace_back(sources[static_cast<std::size_t>(destination)], destination);
    }
  }
  const std::int64_t source = round.draw().between(0, replicas - 1);
  round.note(lockstep::str("; sources ", join(sources), ", of them ", perm.size(),
                           "; broadcast from ", source));
  round.draw_leaves([&] { return random_sizes(round.draw(), 0); });
  const Tensors x = round.mine();
  round.check("ppermute", ppermute(x, "i", perm),
              [&](const Tensors& values) { return oracle_ppermute(values, round.place(), perm); });
  round.check("pshuffle", pshuffle(x, "i", sources), [&](const Tensors& values) {
    return values[static_cast<std::size_t>(sources[round.place()])];
  });
  round.check("pbroadcast", pbroadcast(x, "i", source),
              [&](const Tensors& values) { return values[static_cast<std::size_t>(source)]; });
  round.check("pargmax", pargmax(x, "i"), oracle_pargmax);
  round.check("pargmin", pargmin(x, "i"), oracle_pargmin);
}

void raggeds(std::int64_t number) {
  Round round("ragged_all_to_all", number);
  const RaggedAllToAllOptions options{round.draw_groups(/*equal_sizes=*/true)};
  const std::int64_t rows = round.draw().between(0, 9);
  const RaggedPieces pieces{rows, round.draw().between(1, 3), round.group_size()};
  // Every group has tables like this one's: what is drawn is the same on every replica.
  const std::vector<RaggedNumbers> tables = pieces.tables(round.draw());
  round.note(
      lockstep::str("; ", pieces.pieces, " pieces of ", rows, " rows into ", pieces.output_rows()));
  round.draw_leaves([&] {
    Sizes sizes = random_sizes(round.draw(), 1);
    for (auto& size : sizes) size = std::min<std::int64_t>(size, 12);
    sizes[0] = rows;
    return sizes;
  });
  const Tensors operands = round.mine();
  std::vector<Tensor> outputs;
  std::vector<Tensor> copies;
  for (std::size_t leaf = 0; leaf < operands.size(); ++leaf) {
    auto sizes = operands[leaf].sizes().vec();
    sizes[0] = pieces.output_rows();
    const auto type = operands[leaf].scalar_type();
    outputs.push_back(round.values_of_members("output", leaf, sizes, type)[round.place()]);
    copies.push_back(outputs.back().clone());
  }
  const auto type = round.draw().coin() ? at::kInt : at::kLong;
  const auto tensor = [&](const std::vector<std::int64_t>& values) {
    return at::tensor(values, at::kLong).to(type);
  };
  const RaggedNumbers& mine = tables[round.place()];
  const Tensors results =
      ragged_all_to_all(operands, outputs, tensor(mine.input_offsets), tensor(mine.send_sizes),
                        tensor(mine.output_offsets), tensor(mine.recv_sizes), "i", options);
  std::size_t leaf = 0;
  round.check("ragged_all_to_all", results, [&](const Tensors& values) {
    const Tensor& output = copies[leaf++];
    return oracle_ragged_all_to_all(values, output, tables, round.place());
  });
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    expect(same_bits(outputs[i], copies[i]), "the output was changed, " + round.text());
  }
}

}  // namespace

std::vector<Case> random_move_cases(std::int64_t rounds) {
  return cases_of_rounds(rounds,
                         {{"all_to_all and pswapaxes", all_to_alls},
                          {"ppermute, pshuffle, pbroadcast, pargmax and pargmin", along_the_axis},
                          {"ragged_all_to_all", raggeds}});
}

}  // namespace lockstep::testing
