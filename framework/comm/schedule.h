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

/// One message: for each of `slices`, member `from` sends member `to` the sum of the inputs of the
/// members `of`. The sum over all members is the result.
struct Transfer {
  int from;
  int to;
  reduce::Subtree of;
  Slices slices;
};

/// The messages of a verb, by rounds. A member sends in a round what it has after the rounds
/// before, at first its own input. In the rounds that add, which come first, it adds the sums of a
/// slice that it gets to its own, in the canonical order. In the others it passes on results. Two
/// members exchange at most one message in each direction of a round.
struct Schedule {
  using Round = std::vector<Transfer>;

  int members = 1;
  /// The number of slices of the buffer: 1, or one for each member.
  int slices = 1;
  std::vector<Round> adding{};
  std::vector<Round> passing{};
};

// A block of 2^k members in a row, aligned, is a subtree of the canonical order; so is the last
// block, which may have fewer. Each round makes blocks 2^`levels` times as large. One level takes
// the most rounds and the fewest messages; all_levels() takes one round, in which each member
// exchanges messages with each other one.

/// Returns the fewest `levels` with which schedules of `members` have one round.
[[nodiscard]] int all_levels(int members);

/// Returns recursive doubling: each member of a block gets the whole sums of the other blocks.
[[nodiscard]] Schedule recursive_doubling(int members, int levels);
/// Returns recursive halving: a block's members divide its slices. Member i ends with slice i.
[[nodiscard]] Schedule recursive_halving(int members, int levels);
/// Returns recursive_halving() backwards: member i has slice i, and in the end all have all slices.
[[nodiscard]] Schedule gathering(int members, int levels);
/// Returns a schedule by which all members get the whole buffer, which member 0 has.
[[nodiscard]] Schedule spreading(int members, int levels);
/// Returns one round, in which member 0 has all slices and sends slice i to each member i.
[[nodiscard]] Schedule scattering(int members);
/// Returns the rounds of `adds`, then those of `passes_on`, which has as many slices.
[[nodiscard]] Schedule in_turn(Schedule adds, const Schedule& passes_on);

}  // namespace lockstep::comm
