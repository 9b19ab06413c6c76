#include "framework/comm/schedule.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "framework/base/range.h"

namespace lockstep::comm {
namespace {

using reduce::Subtree;

// Returns the block of `size` = 2^k members that `member` is in.
Subtree block_of(int member, int size, int members) {
  const int first = member / size * size;
  return {first, std::min(size, members - first)};
}

// Returns the member of `block` that is to have `slice`: each has the slices of one residue. In the
// block of all members, member i has slice i.
int owner(const Subtree& block, int slice) {
  const auto count = static_cast<int>(block.count);
  const int first = static_cast<int>(block.first);
  return first + ((slice - first) % count + count) % count;
}

// Returns the sizes of blocks before and after each round.
std::vector<std::pair<int, int>> steps(int members, int levels) {
  std::vector<std::pair<int, int>> found;
  for (int size = 1; size < members;) {
    const int next =
        1 << std::min(std::countr_zero(static_cast<unsigned>(size)) + levels, all_levels(members));
    found.emplace_back(size, next);
    size = next;
  }
  return found;
}

// Adds the slice of `one` to its sender's message from `begin` on, or adds `one` if there is none.
void add(Schedule::Round& round, std::size_t begin, const Transfer& one) {
  for (std::size_t i = begin; i < round.size(); ++i) {
    if (round[i].from != one.from) continue;
    Slices& slices = round[i].slices;
    if (slices.count == 1) slices.step = one.slices.first - slices.first;
    ++slices.count;
    return;
  }
  round.push_back(one);
}

// Makes rounds that add. Member `to` is to have the slices slices_of(block, to). Member from(part,
// to, slice) has the sum of `part` that `to` needs.
template <typename SlicesOf, typename From>
Schedule rounds_up(int members, int slices, int levels, const SlicesOf& slices_of,
                   const From& from) {
  Schedule schedule{.members = members, .slices = slices};
  for (const auto& [size, next] : steps(members, levels)) {
    Schedule::Round& round = schedule.adding.emplace_back();
    for (int to = 0; to < members; ++to) {
      const Subtree block = block_of(to, next, members);
      const auto end = static_cast<int>(block.first + block.count);
      const Slices wanted = slices_of(block, to);
      for (auto first = static_cast<int>(block.first); first < end; first += size) {
        const Subtree part = block_of(first, size, members);
        const std::size_t begin = round.size();
        if (wanted.count > 1 && wanted.step % part.count == 0) {  // they have one owner
          const int sender = from(part, to, wanted[0]);
          if (sender != to) round.push_back({sender, to, part, wanted});
          continue;
        }
        for (int i = 0; i < wanted.count; ++i) {
          const int sender = from(part, to, wanted[i]);
          if (sender != to) add(round, begin, {sender, to, part, {wanted[i], 1, 1}});
        }
      }
    }
  }
  return schedule;
}

}  // namespace

int all_levels(int members) {
  return std::max(1, static_cast<int>(std::bit_width(static_cast<unsigned>(members - 1))));
}

Schedule recursive_doubling(int members, int levels) {
  const auto whole = [](const Subtree&, int) { return Slices{0, 1, 1}; };
  // Members at the same place of two blocks exchange; in a shorter block, members take turns.
  const auto from = [](const Subtree& part, int to, int) {
    return to >= part.first && to < part.first + part.count ? to : owner(part, to);
  };
  return rounds_up(members, 1, levels, whole, from);
}

Schedule recursive_halving(int members, int levels) {
  const auto own = [&](const Subtree& block, int to) {
    const auto step = static_cast<int>(block.count);
    const int first = to % step;
    return Slices{first, step, ceil_div(members - first, step)};
  };
  const auto from = [](const Subtree& part, int, int slice) { return owner(part, slice); };
  return rounds_up(members, members, levels, own, from);
}

Schedule gathering(int members, int levels) {
  Schedule schedule = recursive_halving(members, levels);
  schedule.passing.swap(schedule.adding);
  std::ranges::reverse(schedule.passing);
  for (Schedule::Round& round : schedule.passing) {
    for (Transfer& each : round) {
      std::swap(each.from, each.to);
      each.of = {0, members};
    }
  }
  return schedule;
}

Schedule spreading(int members, int levels) {
  Schedule schedule{.members = members};
  const auto all = steps(members, levels);
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    Schedule::Round& round = schedule.passing.emplace_back();
    for (int to = 0; to < members; to += step->first) {
      const int from = to / step->second * step->second;
      if (from != to) round.push_back({from, to, {0, members}, {0, 1, 1}});
    }
  }
  return schedule;
}

Schedule scattering(int members) {
  Schedule schedule{.members = members, .slices = members};
  Schedule::Round& round = schedule.passing.emplace_back();
  for (int to = 1; to < members; ++to) round.push_back({0, to, {0, members}, {to, 1, 1}});
  return schedule;
}

Schedule in_turn(Schedule adds, const Schedule& passes_on) {
  adds.passing.insert(adds.passing.end(), passes_on.passing.begin(), passes_on.passing.end());
  return adds;
}

}  // namespace lockstep::comm
