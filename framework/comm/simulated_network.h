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

/// The cost of a call in a simulated network. The counts are the most that any member has sent.
struct SimulatedCall {
  double seconds = 0;  ///< until the last member is done
  std::int64_t messages = 0;
  std::int64_t bytes = 0;
};

/// Members, numbered from 0, that send each other the messages of a Schedule, on one switch. Each
/// has a link, on which bytes go and come at the same time, each way one message after the other. A
/// message of more than kSentAtOnce goes once its receiver has said that it waits for it. A member
/// begins a round when all of its messages of the round before have gone and come. It takes
/// kPerMessage for each message, and adds kAddedPerSecond. Nothing is sent anywhere.
class SimulatedNetwork {
 public:
  SimulatedNetwork(int members, const LinkSpeed& link);

  /// Lets all members begin `schedule`, which is for as many, at once, on a buffer of `bytes`:
  /// `times` times, each with a buffer of its own. kPiecesUnderWay of these go on beside each
  /// other. A member makes the data of one time after the other, in `between` seconds each. Only
  /// the first of many times are simulated: the rest take as long as the last of these.
  SimulatedCall run(const Schedule& schedule, std::size_t bytes, std::size_t times = 1,
                    double between = 0);
  /// Lets each member send each other one a message of `bytes` and, if it `adds`, add up those that
  /// it gets. This needs no simulation, since all members do alike.
  SimulatedCall all_to_all(std::size_t bytes, std::size_t times = 1, bool adds = false);

  /// Returns the most members that one member has exchanged messages with so far.
  [[nodiscard]] std::int64_t connections() const;

 private:
  int members_;
  LinkSpeed link_;
  std::vector<std::vector<int>> peers_;  // by member, ascending
  bool knows_all_ = false;               // all_to_all() has been called
};

/// A job's group with `members` members on each of some hosts. It takes the schedules of
/// NetworkCommunicator and, with several members a host, the pieces of HostMembers. Calls of one
/// kind and size are simulated once. One thread may use it.
class SimulatedHosts {
 public:
  SimulatedHosts(int hosts, int members, const LinkSpeed& link);

  /// Simulates a verb on float32 (`halves`: bfloat16): all_reduce, reduce_scatter (`bytes` of the
  /// input) or all_gather (of the output). On one host it costs nothing.
  SimulatedCall run(Verb::Kind kind, std::size_t bytes, bool halves = false);
  [[nodiscard]] std::int64_t connections() const { return network_.connections(); }
  /// Returns Communicator::all_reduce_seconds() of a group on these hosts.
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
  // Returns the most sums that a host sends for its members; none if each host sends one sum.
  [[nodiscard]] std::optional<std::size_t> sums_of_host(bool halves) const;

  int hosts_;
  std::size_t members_;
  ScheduleChoice choice_;
  SimulatedNetwork network_;
  std::vector<Known> known_;
};

}  // namespace lockstep::comm
