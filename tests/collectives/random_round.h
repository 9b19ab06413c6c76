#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/tree/tree.h"
#include "tests/collectives/cases.h"
#include "tests/collectives/oracle.h"

namespace lockstep::testing {

using Tensors = std::vector<Tensor>;
using Sizes = std::vector<std::int64_t>;

inline constexpr std::uint64_t kRandomSeed = 20240917;

inline at::ScalarType random_type(Draw& draw) {
  constexpr std::array kTypes{at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                              at::kInt,    at::kShort, at::kChar, at::kByte,     at::kBool};
  return kTypes[static_cast<std::size_t>(
      draw.between(0, static_cast<std::int64_t>(kTypes.size()) - 1))];
}

inline Sizes random_sizes(Draw& draw, std::int64_t least_dimensions) {
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
        key_(Key(kRandomSeed)
                 .fold(operation)
                 .fold(static_cast<std::uint64_t>(replicas_))
                 .fold(static_cast<std::uint64_t>(round))),
        draw_(key_.fold("call")),
        text_(str("seed ", kRandomSeed, ", ", operation, ", ", replicas_, " replicas, round ",
                  round)) {}

  Draw& draw() { return draw_; }

  const AxisIndexGroups& draw_groups(bool equal_sizes) {
    groups_ = random_groups(draw_, replicas_, equal_sizes);
    members_ = group_of(groups_, axis_index("i"), replicas_);
    return groups_;
  }
  // Without groups: the whole axis.
  void take_whole_axis() { members_ = group_of({}, axis_index("i"), replicas_); }
  std::int64_t replicas() const { return replicas_; }
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
      const auto type = random_type(draw_);
      Tensors values = values_of_members("input", inputs_.size(), drawn, type);
      text_ += lockstep::str("; ", at::toString(type), " ", at::IntArrayRef(drawn));
      copies_.push_back(values[place()].clone());
      inputs_.push_back(std::move(values));
    }
  }
  // A tensor of every member, in the group's order; layouts differ from replica to replica, too.
  Tensors values_of_members(const std::string& use, std::size_t leaf, const Sizes& sizes,
                            at::ScalarType type) const {
    Tensors values;
    for (const std::int64_t member : members_) {
      Draw own(key_.fold(use).fold(static_cast<std::uint64_t>(member)).fold(leaf));
      values.push_back(random_tensor(own, sizes, type));
    }
    return values;
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

/// What the replicas of a group send each other: up to three rows a piece from anywhere in operands
/// of `rows`, in the outputs in random order with gaps between them.
struct RaggedPieces {
  std::int64_t rows;
  std::int64_t pieces;  ///< a pair of replicas
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

/// For each operation a case for each number of replicas, which draws so many calls.
inline std::vector<Case> cases_of_rounds(
    std::int64_t rounds,
    const std::vector<std::pair<std::string, void (*)(std::int64_t round)>>& operations) {
  std::vector<Case> cases;
  for (const auto& [name, one_round] : operations) {
    for (const std::int64_t replicas : {1, 2, 3, 4, 5, 8}) {
      cases.push_back({str(name, " of random trees, ", replicas, " replicas"), replicas,
                       [rounds, one_round = one_round] {
                         for (std::int64_t i = 0; i < rounds; ++i) one_round(i);
                       }});
    }
  }
  return cases;
}

}  // namespace lockstep::testing
