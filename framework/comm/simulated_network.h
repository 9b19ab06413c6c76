#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/comm/link_speed.h"
#include "framework/comm/schedule.h"
#include "framework/comm/schedule_choice.h"

namespace lockstep::comm {

/// What a call has taken in a simulated network. The counts are the most that any member has sent.
struct SimulatedCall {
  double seconds = 0;  ///< until the last member is done
  std::int64_t messages = 0;
  std::int64_t bytes = 0;
};

/// Members, numbered from 0, that send each other messages as a Schedule says, on one switch. Each
/// has a link, on which bytes go and come at the same time, each way one message after the other.
/// A message of more than kSentAtOnce goes once its receiver has said that it waits for it. A
/// member begins a round when all of its messages of the round before have gone and come. It takes
/// kPerMessage for each, and kAddedPerSecond for what it adds. Nothing is sent anywhere.
class SimulatedNetwork {
 public:
  SimulatedNetwork(int members, const LinkSpeed& link);

  /// All members begin `schedule`, which is for as many, at once, on a buffer of `bytes`. They do
  /// so `times` times, of which kPiecesUnderWay go on beside each other, each with a buffer of its
  /// own. A time begins when the member has taken `between` seconds since it began the one before:
  /// to make what it sends. Of many times the first ones are simulated, the rest take as long as
  /// the last of these.
  SimulatedCall run(const Schedule& schedule, std::size_t bytes, std::size_t times = 1,
                    double between = 0);
  /// Each member sends each other one a message of `bytes`, of which it adds up those that it gets
  /// if it `adds`: without a simulation, since all do alike.
  SimulatedCall all_to_all(std::size_t bytes, std::size_t times = 1, bool adds = false);

  /// With how many others the member with the most has exchanged messages so far.
  [[nodiscard]] std::int64_t connections() const;

 private:
  int members_;
  LinkSpeed link_;
  std::vector<std::vector<int>> peers_;  // of each member, in any order, some several times
  bool knows_all_ = false;               // all_to_all() has been called
};

/// A job's group with so many `members` on each of some hosts, which takes the ways of
/// NetworkCommunicator and, with several members, HostMembers: by ScheduleChoice. Calls of one kind
/// and size are simulated once. For one thread.
class SimulatedHosts {
 public:
  SimulatedHosts(int hosts, int members, const LinkSpeed& link);

  /// A verb on float32 (`halves`: bfloat16): all_reduce, reduce_scatter (`bytes` of the input) or
  /// all_gather (of the output). Nothing on one host.
  SimulatedCall run(Verb::Kind kind, std::size_t bytes, bool halves = false);
  [[nodiscard]] std::int64_t connections() const { return network_.connections(); }
  /// As Communicator::all_reduce_seconds() has it on these hosts.
  [[nodiscard]] double all_reduce_seconds(std::size_t bytes) const {
    return hosts_ == 1 ? 0 : choice_.all_reduce_seconds(bytes);
  }

 private:
  struct Known {
    Verb::Kind kind;
    std::size_t bytes;
    bool halves;
    SimulatedCall call;
  };
  SimulatedCall simulated(Verb::Kind kind, std::size_t bytes, bool halves);
  // How many sums each host sends for its members; none: one, of the order of hosts.
  [[nodiscard]] std::optional<std::size_t> sums_of_host(bool halves) const;

  int hosts_;
  std::size_t members_;
  ScheduleChoice choice_;
  SimulatedNetwork network_;
  std::vector<Known> known_;
};

}  // namespace lockstep::comm
