#include "framework/comm/schedule.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/text.h"
#include "framework/comm/schedule_choice.h"
#include "framework/reduce/canonical_order.h"
#include "tests/catch.h"

using namespace lockstep;
using comm::Schedule;
using comm::Transfer;
using reduce::Subtree;

namespace {

// Returns a sum as it is added: "((0+1)+2)".
std::string sum_text(const Subtree& node) {
  if (node.count == 1) return str(node.first);
  return str("(", sum_text(node.left()), "+", sum_text(node.right()), ")");
}
std::string sum_text(const std::vector<std::string>& parts, const Subtree& node) {
  if (node.count == 1) return parts[static_cast<std::size_t>(node.first)];
  return str("(", sum_text(parts, node.left()), "+", sum_text(parts, node.right()), ")");
}

// Members that follow a schedule, with sums as texts. A slice that a member does not have is "".
class Simulation {
 public:
  explicit Simulation(int members, int slices)
      : has_(static_cast<std::size_t>(members),
             std::vector<std::string>(static_cast<std::size_t>(slices))) {}

  [[nodiscard]] std::string& at(int member, int slice) {
    return has_[static_cast<std::size_t>(member)][static_cast<std::size_t>(slice)];
  }
  void give_inputs() {
    for (std::size_t member = 0; member < has_.size(); ++member) {
      std::ranges::fill(has_[member], str(member));
    }
  }

  void run(const Schedule& schedule) {
    for (const auto& round : schedule.adding) {
      std::map<std::pair<int, int>, std::map<std::int64_t, std::string>> came;
      std::set<std::pair<int, int>> had_own;
      for_each(round, [&](const Transfer& each, int slice) {
        came[{each.to, slice}][each.of.first] = at(each.from, slice);
        if (each.to >= each.of.first && each.to < each.of.first + each.of.count) {
          had_own.insert({each.to, slice});
        }
      });
      for (auto& [where, parts] : came) {
        const auto [member, slice] = where;
        if (had_own.count(where) == 0) parts[member] = at(member, slice);
        std::vector<std::string> in_order;
        for (const auto& [first, part] : parts) in_order.push_back(part);
        at(member, slice) = sum_text(in_order, {0, static_cast<std::int64_t>(in_order.size())});
      }
    }
    for (const auto& round : schedule.passing) {
      std::map<std::pair<int, int>, std::string> came;
      for_each(round, [&](const Transfer& each, int slice) {
        came[{each.to, slice}] = at(each.from, slice);
      });
      for (const auto& [where, sum] : came) at(where.first, where.second) = sum;
    }
  }

 private:
  template <typename Body>
  void for_each(const Schedule::Round& round, const Body& body) {
    std::set<std::pair<int, int>> pairs;
    for (const Transfer& each : round) {
      CHECK(each.from != each.to);
      CHECK(pairs.insert({each.from, each.to}).second);
      for (int i = 0; i < each.slices.count; ++i) {
        CHECK(at(each.from, each.slices[i]) == sum_text(each.of));
        body(each, each.slices[i]);
      }
    }
  }

  std::vector<std::vector<std::string>> has_;
};

// Returns the numbers of slices that each member sends, and receives, in all rounds.
std::pair<std::vector<int>, std::vector<int>> moved(const std::vector<Schedule::Round>& rounds,
                                                    int members) {
  std::pair<std::vector<int>, std::vector<int>> slices;
  slices.first.resize(static_cast<std::size_t>(members));
  slices.second.resize(static_cast<std::size_t>(members));
  for (const auto& round : rounds) {
    for (const Transfer& each : round) {
      slices.first[static_cast<std::size_t>(each.from)] += each.slices.count;
      slices.second[static_cast<std::size_t>(each.to)] += each.slices.count;
    }
  }
  return slices;
}

const std::vector<int> kMembers{1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17, 24, 33, 64};

int rounds_for(int members, int levels) {
  int rounds = 0;
  for (int block = 1; block < members; block <<= levels) ++rounds;
  return rounds;
}

template <typename Check>
void with_each(const Check& check) {
  for (const int members : kMembers) {
    for (int levels = 1; levels <= comm::all_levels(members); ++levels) {
      INFO(members << " members, " << levels << " levels a round");
      check(members, levels);
    }
  }
}

bool is_power_of_two(int number) {
  return (number & (number - 1)) == 0;
}

const Schedule& all_reduce(int members, const comm::LinkSpeed& link, std::size_t bytes) {
  static std::map<std::pair<int, double>, comm::ScheduleChoice> choices;
  const auto key = std::pair(members, link.latency + link.bytes_per_second);
  return choices.try_emplace(key, members, link).first->second.all_reduce(bytes, {});
}

}  // namespace

TEST_CASE("recursive doubling gives all members the canonical sum, in the fewest rounds",
          "[schedule]") {
  with_each([](int members, int levels) {
    const Schedule schedule = comm::recursive_doubling(members, levels);
    Simulation simulation(members, 1);
    simulation.give_inputs();
    simulation.run(schedule);
    for (int member = 0; member < members; ++member) {
      CHECK(simulation.at(member, 0) == sum_text({0, members}));
    }
    CHECK(static_cast<int>(schedule.adding.size()) == rounds_for(members, levels));
  });
}

TEST_CASE("recursive halving gives each member its slice of the canonical sum", "[schedule]") {
  with_each([](int members, int levels) {
    const Schedule schedule = comm::recursive_halving(members, levels);
    Simulation simulation(members, members);
    simulation.give_inputs();
    simulation.run(schedule);
    for (int member = 0; member < members; ++member) {
      CHECK(simulation.at(member, member) == sum_text({0, members}));
    }
    CHECK(static_cast<int>(schedule.adding.size()) == rounds_for(members, levels));
    const auto [sent, received] = moved(schedule.adding, members);
    if (is_power_of_two(members) || schedule.adding.size() == 1) {
      for (int member = 0; member < members; ++member) {
        CHECK(sent[static_cast<std::size_t>(member)] == members - 1);
        CHECK(received[static_cast<std::size_t>(member)] == members - 1);
      }
    }
  });
}

TEST_CASE("gathering gives all members all slices, each of them once", "[schedule]") {
  with_each([](int members, int levels) {
    const Schedule schedule = comm::gathering(members, levels);
    Simulation simulation(members, members);
    for (int member = 0; member < members; ++member) {
      simulation.at(member, member) = sum_text({0, members});
    }
    simulation.run(schedule);
    for (int member = 0; member < members; ++member) {
      for (int slice = 0; slice < members; ++slice) {
        CHECK(simulation.at(member, slice) == sum_text({0, members}));
      }
      if (!is_power_of_two(members) && schedule.passing.size() > 1) continue;
      CHECK(moved(schedule.passing, members).second[static_cast<std::size_t>(member)] ==
            members - 1);
    }
    CHECK(static_cast<int>(schedule.passing.size()) == rounds_for(members, levels));
  });
}

TEST_CASE("a broadcast reaches all members, whole or in slices", "[schedule]") {
  with_each([](int members, int levels) {
    for (const Schedule& schedule :
         {comm::spreading(members, levels),
          comm::in_turn(comm::scattering(members), comm::gathering(members, levels))}) {
      Simulation simulation(members, schedule.slices);
      for (int slice = 0; slice < schedule.slices; ++slice) {
        simulation.at(0, slice) = sum_text({0, members});
      }
      simulation.run(schedule);
      for (int member = 0; member < members; ++member) {
        for (int slice = 0; slice < schedule.slices; ++slice) {
          CHECK(simulation.at(member, slice) == sum_text({0, members}));
        }
      }
    }
  });
}

TEST_CASE("what a schedule costs is counted by rounds", "[schedule]") {
  const comm::LinkSpeed link{.latency = 1, .bytes_per_second = 1e3};
  const auto seconds = [&](const Schedule& schedule, std::size_t bytes) {
    return comm::ScheduleCost(schedule).seconds(bytes, link);
  };
  CHECK(seconds(comm::recursive_doubling(1, 1), 1000) == 0);
  CHECK(seconds(comm::recursive_doubling(8, 1), 1000) == Approx(3 * (1 + 1)).epsilon(0.001));
  CHECK(seconds(comm::recursive_doubling(8, 3), 1000) == Approx(1 + 7).epsilon(0.001));
  CHECK(seconds(comm::recursive_doubling(5, 1), 1000) == Approx(3 + 1 + 1 + 4).epsilon(0.001));
  CHECK(seconds(comm::recursive_halving(8, 1), 1000) == Approx(3 + 7.0 / 8).epsilon(0.001));
  CHECK(seconds(comm::gathering(8, 3), 1000) == Approx(1 + 7.0 / 8).epsilon(0.001));
  // Messages of more than kSentAtOnce ask first.
  CHECK(seconds(comm::recursive_doubling(2, 1), 100'000) == Approx(2 + 100).epsilon(0.001));
}

TEST_CASE("small messages take the fewest rounds, large ones load every link alike", "[schedule]") {
  const comm::LinkSpeed far{.latency = 5e-3, .bytes_per_second = 12.5e6};
  const comm::LinkSpeed near{.latency = 50e-6, .bytes_per_second = 117e6};
  for (const int members : {2, 3, 4, 8, 16}) {
    INFO(members << " members");
    for (const auto& link : {far, near}) {
      const Schedule& small = all_reduce(members, link, 8);
      CHECK(small.slices == 1);
      if (members <= 8) CHECK(small.adding.size() == 1);
    }
    for (const auto& link : {far, near, comm::kLoopback}) {
      const Schedule& large = all_reduce(members, link, 256 << 20);
      CHECK(large.slices == members);
      for (const auto& rounds : {large.adding, large.passing}) {
        const auto [sent, received] = moved(rounds, members);
        CHECK(std::ranges::count(sent, members - 1) == members);
        CHECK(std::ranges::count(received, members - 1) == members);
      }
    }
  }
  // With many members on a fast link, messages cost more than rounds.
  CHECK(all_reduce(64, comm::kLoopback, 8).adding.size() > 1);
  CHECK(all_reduce(64, far, 8).adding.size() == 1);
}

TEST_CASE("sums that must be rounded once are added in one round", "[schedule]") {
  for (const int members : {64, 100}) {
    const comm::ScheduleChoice choice(members, comm::kLoopback);
    for (const std::size_t bytes : {8, 100'000, 100'000'000}) {
      CHECK(choice.all_reduce(bytes, {.complete = true}).adding.size() == 1);
      CHECK(choice.reduce_scatter(bytes, {.complete = true}).adding.size() == 1);
      CHECK(choice.all_reduce(bytes, {.whole = true}).slices == 1);
    }
  }
}

TEST_CASE("in large groups nobody has to do with all others, however long the way", "[schedule]") {
  const comm::ScheduleChoice choice(200, {.latency = 1, .bytes_per_second = 1e12});
  for (const Schedule& schedule :
       {choice.all_reduce(8, {}), choice.reduce_scatter(8, {}), choice.all_gather(8),
        choice.broadcast(8), choice.broadcast(1 << 28), choice.all_reduce(1 << 28, {})}) {
    CHECK(schedule.adding.size() + schedule.passing.size() > 1);
    for (const auto& rounds : {schedule.adding, schedule.passing}) {
      for (const Schedule::Round& round : rounds) {
        std::vector<int> messages(200);
        for (const Transfer& each : round) ++messages[static_cast<std::size_t>(each.from)];
        CHECK(std::ranges::max(messages) < 1 << comm::ScheduleChoice::kMostLevels);
      }
    }
  }
}
