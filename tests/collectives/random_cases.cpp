#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/psum.h"
#include "tests/collectives/cases.h"
#include "tests/collectives/oracle.h"
#include "tests/collectives/random_round.h"

namespace lockstep::testing {
namespace {

// The order of zeros of different sign in a maximum is nobody's promise.
bool equal_values(const Tensor& a, const Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.equal(b);
}

void reductions(std::int64_t number) {
  Round round("reductions", number);
  const ReduceOptions options{.axis_index_groups = round.draw_groups(/*equal_sizes=*/false)};
  round.draw_leaves([&] { return random_sizes(round.draw(), 0); });
  const Tensors x = round.mine();
  round.check("psum", psum(x, "i", options), oracle_psum);
  round.check("pmean", pmean(x, "i", options), oracle_pmean);
  round.check("pmax", pmax(x, "i", options), oracle_pmax, equal_values);
  round.check("pmin", pmin(x, "i", options), oracle_pmin, equal_values);
  expect(psum(1, "i", options) == round.group_size(), "psum(1) in " + round.text());
}

void gathers(std::int64_t number) {
  Round round("all_gather", number);
  AllGatherOptions options{.axis_index_groups = round.draw_groups(/*equal_sizes=*/true)};
  options.tiled = round.draw().coin();
  // One axis for all leaves: so many dimensions has the leaf with the fewest.
  const std::int64_t dimensions = round.draw().between(options.tiled ? 1 : 0, 4);
  const std::int64_t range = dimensions + (options.tiled ? 0 : 1);
  options.axis = round.draw().between(-range, range - 1);
  round.note(lockstep::str("; axis ", options.axis, options.tiled ? " tiled" : ""));
  round.draw_leaves([&] { return random_sizes(round.draw(), dimensions); });
  round.check("all_gather", all_gather(round.mine(), "i", options), [&](const Tensors& values) {
    return oracle_all_gather(values, options.axis, options.tiled);
  });
}

void scatters(std::int64_t number) {
  Round round("psum_scatter", number);
  PsumScatterOptions options{.axis_index_groups = round.draw_groups(/*equal_sizes=*/true)};
  options.tiled = round.draw().coin();
  const std::int64_t dimensions = round.draw().between(1, 4);
  options.scatter_dimension = round.draw().between(-dimensions, dimensions - 1);
  round.note(lockstep::str("; scatter_dimension ", options.scatter_dimension,
                           options.tiled ? " tiled" : ""));
  round.draw_leaves([&] {
    Sizes sizes = random_sizes(round.draw(), dimensions);
    const auto rank = static_cast<std::int64_t>(sizes.size());
    const std::int64_t dimension =
        options.scatter_dimension + (options.scatter_dimension < 0 ? rank : 0);
    const std::int64_t pieces = options.tiled ? round.draw().between(0, rank == 1 ? 250 : 3) : 1;
    sizes[static_cast<std::size_t>(dimension)] = pieces * round.group_size();
    return sizes;
  });
  const Tensors x = round.mine();
  const Tensors pieces = psum_scatter(x, "i", options);
  const Tensors whole = all_gather(pieces, "i",
                                   {.axis = options.scatter_dimension,
                                    .tiled = options.tiled,
                                    .axis_index_groups = options.axis_index_groups});
  round.check("psum_scatter", pieces, [&](const Tensors& values) {
    return oracle_psum_scatter(values, round.place(), options.scatter_dimension, options.tiled);
  });
  const Tensors sums = psum(x, "i", {.axis_index_groups = options.axis_index_groups});
  for (std::size_t leaf = 0; leaf < sums.size(); ++leaf) {
    expect(same_bits(whole[leaf], sums[leaf]),
           "all_gather(psum_scatter(x)) is not psum(x), " + round.text());
  }
}

}  // namespace

std::vector<Case> random_cases(std::int64_t rounds) {
  return cases_of_rounds(
      rounds, {{"reductions", reductions}, {"all_gather", gathers}, {"psum_scatter", scatters}});
}

}  // namespace lockstep::testing
