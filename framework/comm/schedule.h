#pragma once

#include <vector>

#include "framework/reduce/canonical_order.h"

namespace lockstep::comm {

/// Some of the slices that a buffer is cut into: `first`, `first` + `step`, … `count` of them.
struct Slices {
  int first;
  int step;
  int count;

  [[nodiscard]] int operator[](int index) const noexcept { return first + index * step; }
};

/// One message: member `from` sends member `to`, of each of `slices`, the sum of what the members
/// `of` have put in. If these are all members, that is the result.
struct Transfer {
  int from;
  int to;
  reduce::Subtree of;
  Slices slices;
};

/// Who sends what to whom in which round. A member sends in a round what it has after the rounds
/// before, at first its own input. In the rounds that add, which come first, it adds what it gets
/// of a slice to what it has, in the canonical order. In the others it passes on results. Two
/// members exchange at most one message in each direction of a round.
struct Schedule {
  using Round = std::vector<Transfer>;

  int members = 1;
  /// The buffer is cut into so many: 1, or one for each member.
  int slices = 1;
  std::vector<Round> adding{};
  std::vector<Round> passing{};
};

// Members that are 2^k in a row, aligned, are a subtree of the canonical order; so are the last
// ones, where fewer than 2^k are left. Each round makes such blocks 2^`levels` times as large: 1
// takes the most rounds and the fewest messages; `levels` for all members takes one round in which
// each member exchanges messages with each other one.

/// The fewest `levels` with which schedules of `members` have one round.
[[nodiscard]] int all_levels(int members);

/// Recursive doubling: each member of a block gets the whole sums of the other blocks.
[[nodiscard]] Schedule recursive_doubling(int members, int levels);
/// Recursive halving: a block's slices are divided among its members. Member i ends with slice i.
[[nodiscard]] Schedule recursive_halving(int members, int levels);
/// From slice i at each member i to all slices at all members: recursive_halving() backwards.
[[nodiscard]] Schedule gathering(int members, int levels);
/// Member 0 has the whole buffer, and in the end all have.
[[nodiscard]] Schedule spreading(int members, int levels);
/// Member 0 has all slices and sends slice i to each member i, in one round.
[[nodiscard]] Schedule scattering(int members);
/// The rounds of `adds`, then those of `passes_on`, which has as many slices.
[[nodiscard]] Schedule in_turn(Schedule adds, const Schedule& passes_on);

}  // namespace lockstep::comm
