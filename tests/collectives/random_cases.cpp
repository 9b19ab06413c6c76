#include <array>
#include <utility>

#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/collectives/psum_scatter.h"
#include "tests/collectives/cases.h"
#include "tests/collectives/oracle.h"

namespace lockstep::testing {
namespace {

using Tensors = std::vector<Tensor>;
using Sizes = std::vector<std::int64_t>;

constexpr std::uint64_t kSeed = 20240917;
constexpr std::array kTypes{at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                            at::kInt,    at::kShort, at::kChar, at::kByte,     at::kBool};

Sizes random_sizes(Draw& draw, std::int64_t least_dimensions) {
  Sizes sizes(static_cast<std::size_t>(draw.between(least_dimensions, 4)));
  constexpr std::array<std::int64_t, 5> kLongest{1, 2000, 45, 12, 6};
  for (auto& size : sizes) size = draw.between(1, kLongest[sizes.size()]);
  if (!sizes.empty() && draw.between(0, 7) == 0) sizes.back() = 0;
  if (sizes.size() > 1 && draw.between(0, 7) == 0) sizes.front() = 0;
  return sizes;
}

// One call, drawn alike on every replica: the leaves' shapes and dtypes, the groups, and the inputs
// of every replica of this one's group, in the group's order.
class Round {
 public:
  Round(const std::string& operation, std::int64_t round)
      : replicas_(axis_size("i")),
        key_(Key(kSeed)
                 .fold(operation)
                 .fold(static_cast<std::uint64_t>(replicas_))
                 .fold(static_cast<std::uint64_t>(round))),
        draw_(key_.fold("call")),
        text_(str("seed ", kSeed, ", ", operation, ", ", replicas_, " replicas, round ", round)) {}

  Draw& draw() { return draw_; }

  const AxisIndexGroups& draw_groups(bool equal_sizes) {
    groups_ = random_groups(draw_, replicas_, equal_sizes);
    members_ = group_of(groups_, axis_index("i"), replicas_);
    return groups_;
  }
  std::int64_t group_size() const { return static_cast<std::int64_t>(members_.size()); }
  std::size_t place() const {
    std::size_t place = 0;
    while (members_[place] != axis_index("i")) ++place;
    return place;
  }

  // One to four leaves, whose sizes `sizes` draws.
  template <typename DrawSizes>
  void draw_leaves(const DrawSizes& sizes) {
    for (std::int64_t leaf = draw_.between(1, 4); leaf > 0; --leaf) {
      const Sizes drawn = sizes();
      const auto type = kTypes[static_cast<std::size_t>(
          draw_.between(0, static_cast<std::int64_t>(kTypes.size()) - 1))];
      std::vector<Tensor> values;
      for (const std::int64_t member : members_) {
        // Layouts differ from replica to replica, too.
        Draw own(key_.fold(static_cast<std::uint64_t>(member)).fold(inputs_.size()));
        values.push_back(random_tensor(own, drawn, type));
      }
      text_ += lockstep::str("; ", at::toString(type), " ", at::IntArrayRef(drawn));
      copies_.push_back(values[place()].clone());
      inputs_.push_back(std::move(values));
    }
  }
  Tensors mine() const {
    Tensors leaves;
    for (const auto& values : inputs_) leaves.push_back(values[place()]);
    return leaves;
  }

  // Compares with `oracle` of each leaf's values, then writes to the results: they must share
  // memory neither with each other nor with the inputs.
  template <typename Oracle, typename Same>
  void check(const std::string& call, const Tensors& results, const Oracle& oracle,
             const Same& same) const {
    const auto failed = [&](std::size_t leaf, const char* what) {
      return lockstep::str(call, ", leaf ", leaf, " ", what, " (", text_, ")");
    };
    expect(results.size() == inputs_.size(), failed(results.size(), "leaves came back"));
    for (std::size_t leaf = 0; leaf < results.size(); ++leaf) {
      expect(results[leaf].is_contiguous(), failed(leaf, "is not contiguous"));
      expect(same(results[leaf], oracle(inputs_[leaf])), failed(leaf, "differs from the oracle"));
      results[leaf].zero_();
      expect(same_bits(inputs_[leaf][place()], copies_[leaf]), failed(leaf, "changed its input"));
    }
  }
  template <typename Oracle>
  void check(const std::string& call, const Tensors& results, const Oracle& oracle) const {
    check(call, results, oracle, same_bits);
  }

  void note(const std::string& text) { text_ += text; }
  const std::string& text() const { return text_; }

 private:
  std::int64_t replicas_;
  Key key_;
  Draw draw_;
  std::string text_;
  AxisIndexGroups groups_;
  std::vector<std::int64_t> members_;
  std::vector<Tensors> inputs_;  // [leaf][member]
  Tensors copies_;
};

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
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, void (*one_round)(std::int64_t)) {
    for (const std::int64_t replicas : {1, 2, 3, 4, 5, 8}) {
      cases.push_back({str(name, " of random trees, ", replicas, " replicas"), replicas, [=] {
                         for (std::int64_t i = 0; i < rounds; ++i) one_round(i);
                       }});
    }
  };
  add("reductions", reductions);
  add("all_gather", gathers);
  add("psum_scatter", scatters);
  return cases;
}

}  // namespace lockstep::testing
