#include "framework/comm/simulated_network.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <span>
#include <tuple>
#include <utility>

#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/comm/host_members.h"
#include "framework/reduce/partial_sums.h"

namespace lockstep::comm {
namespace {

// The number of a schedule's times that are simulated. The last kRegular of these show how long
// later ones take: all end as far from each other.
constexpr std::size_t kSimulated = 8;
constexpr std::size_t kRegular = 4;
static_assert(kRegular % kPiecesUnderWay == 0);

// Messages that a member sends side by side alternate in parts: so many parts in all.
constexpr std::size_t kParts = 8;

// The messages of a round, and by member the messages that it sends and gets.
struct Round {
  struct Message {
    int from;
    int to;
    double bytes;
    std::size_t parts = 1;
  };
  // Numbers of messages: member m's are from first[m] to first[m + 1].
  struct ByMember {
    std::vector<std::size_t> first;
    std::vector<std::size_t> numbers;

    [[nodiscard]] std::span<const std::size_t> of(int member) const {
      const auto m = static_cast<std::size_t>(member);
      return std::span(numbers).subspan(first[m], first[m + 1] - first[m]);
    }
  };

  std::vector<Message> messages;
  ByMember sent;
  ByMember received;
  bool adds;
};

Round::ByMember by_member(const std::vector<Round::Message>& messages, int members,
                          int Round::Message::*member) {
  Round::ByMember found{std::vector<std::size_t>(static_cast<std::size_t>(members) + 1),
                        consecutive(std::size_t{0}, messages.size())};
  // The next member comes first, as in NetworkCommunicator.
  const auto place = [&](std::size_t number) {
    const Round::Message& message = messages[number];
    return std::pair(message.*member, (message.to - message.from + members) % members);
  };
  std::ranges::sort(found.numbers, {}, place);
  for (const auto& message : messages) ++found.first[static_cast<std::size_t>(message.*member) + 1];
  std::partial_sum(found.first.begin(), found.first.end(), found.first.begin());
  return found;
}

std::vector<Round> rounds_of(const Schedule& schedule, std::size_t bytes) {
  const double slice = static_cast<double>(bytes) / schedule.slices;
  std::vector<Round> rounds;
  const auto add = [&](const Schedule::Round& round, bool adds) {
    std::vector<Round::Message> messages;
    for (const Transfer& each : round) {
      messages.push_back({.from = each.from, .to = each.to, .bytes = each.slices.count * slice});
    }
    Round& made = rounds.emplace_back(Round{std::move(messages), {}, {}, adds});
    made.sent = by_member(made.messages, schedule.members, &Round::Message::from);
    made.received = by_member(made.messages, schedule.members, &Round::Message::to);
    for (Round::Message& each : made.messages) {
      const std::size_t beside = made.sent.of(each.from).size();
      if (beside > 1) each.parts = ceil_div(kParts, beside);
    }
  };
  for (const auto& round : schedule.adding) add(round, true);
  for (const auto& round : schedule.passing) add(round, false);
  return rounds;
}

bool is_large(double bytes) {
  return bytes > static_cast<double>(kSentAtOnce);
}

// Members that go through the rounds `times` times.
class Simulation {
 public:
  Simulation(std::vector<Round> rounds, int members, const LinkSpeed& link, std::size_t times,
             double between)
      : rounds_(std::move(rounds)),
        members_(members),
        link_(link),
        between_(between),
        states_(times, std::vector<State>(static_cast<std::size_t>(members))),
        ends_(times, 0.0),
        free_to_send_(static_cast<std::size_t>(members), 0.0),
        free_to_get_(static_cast<std::size_t>(members), 0.0) {
    for (std::size_t time = 0; time < times; ++time) {
      came_.push_back(mapped(
          rounds_, [](const Round& round) { return std::vector(round.messages.size(), kNot); }));
    }
  }

  // Returns when the last member has ended each time.
  std::vector<double> run() {
    if (rounds_.empty()) return ends_;
    for (std::size_t time = 0; time < std::min(ends_.size(), kPiecesUnderWay); ++time) {
      for (int member = 0; member < members_; ++member) begin_time(time, member, 0);
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      event.is_begin ? begin_round(event.time, static_cast<int>(event.number), event.at)
                     : send(event);
    }
    return ends_;
  }

 private:
  static constexpr double kNot = -1;

  struct State {
    int round = -1;
    double begin = 0;         // of the round
    double last = 0;          // when the last of its messages so far has gone or come
    std::size_t pending = 0;  // messages
  };
  // A member begins a round, or a part of a message can go.
  struct Event {
    double at;
    bool is_begin;
    std::size_t time;
    std::size_t number;  // of the member, or of the message in the round
    std::size_t round = 0;
    std::size_t part = 0;
    int way = 0;  // how far the receiver is behind the sender: the nearest one comes first
    std::size_t pushed = 0;

    bool operator>(const Event& other) const {
      return std::tuple(at, way, pushed) > std::tuple(other.at, other.way, other.pushed);
    }
  };

  State& state(std::size_t time, int member) {
    return states_[time][static_cast<std::size_t>(member)];
  }
  bool is_in(std::size_t time, int member, std::size_t round) {
    return state(time, member).round == static_cast<int>(round);
  }

  void begin_time(std::size_t time, int member, double at) {
    const double made = static_cast<double>(time + 1) * between_;
    push_begin(time, member, std::max(at, made));
  }

  void push_begin(std::size_t time, int member, double at) {
    events_.push({.at = at,
                  .is_begin = true,
                  .time = time,
                  .number = static_cast<std::size_t>(member),
                  .pushed = pushed_++});
  }
  void push_part(std::size_t time, std::size_t round, std::size_t id, std::size_t part, double at) {
    const Round::Message& message = rounds_[round].messages[id];
    events_.push({.at = at,
                  .is_begin = false,
                  .time = time,
                  .number = id,
                  .round = round,
                  .part = part,
                  .way = (message.to - message.from + members_) % members_,
                  .pushed = pushed_++});
  }

  // A large message goes once both its ends have begun the round: the later end lets it go.
  void begin_round(std::size_t time, int member, double at) {
    State& own = state(time, member);
    const auto number = static_cast<std::size_t>(++own.round);
    const Round& round = rounds_[number];
    own.begin = own.last = at;
    own.pending = 0;
    for (const std::size_t id : round.sent.of(member)) {
      const Round::Message& message = round.messages[id];
      ++own.pending;
      if (!is_large(message.bytes)) {
        push_part(time, number, id, 0, at);
      } else if (is_in(time, message.to, number)) {
        const double asked = state(time, message.to).begin + link_.latency;
        push_part(time, number, id, 0, std::max(at, asked));
      }
    }
    for (const std::size_t id : round.received.of(member)) {
      const Round::Message& message = round.messages[id];
      const double came = came_[time][number][id];
      if (came != kNot) {
        own.last = std::max(own.last, came);
        continue;
      }
      ++own.pending;
      if (is_large(message.bytes) && is_in(time, message.from, number)) {
        push_part(time, number, id, 0, at + link_.latency);
      }
    }
    if (own.pending == 0) end_round(time, member);
  }

  void send(const Event& event) {
    const Round::Message& message = rounds_[event.round].messages[event.number];
    const double moving =
        message.bytes / static_cast<double>(message.parts) / link_.bytes_per_second;
    double& sends = free_to_send_[static_cast<std::size_t>(message.from)];
    double& gets = free_to_get_[static_cast<std::size_t>(message.to)];
    const double begin = std::max(event.at, sends);
    sends = begin + moving;
    gets = std::max(begin + link_.latency, gets) + moving;
    if (event.part + 1 < message.parts) {
      return push_part(event.time, event.round, event.number, event.part + 1, sends);
    }
    note(event.time, message.from, sends);
    if (is_in(event.time, message.to, event.round)) return note(event.time, message.to, gets);
    came_[event.time][event.round][event.number] = gets;
  }

  void note(std::size_t time, int member, double at) {
    State& own = state(time, member);
    own.last = std::max(own.last, at);
    if (--own.pending == 0) end_round(time, member);
  }

  void end_round(std::size_t time, int member) {
    const State& own = state(time, member);
    const Round& round = rounds_[static_cast<std::size_t>(own.round)];
    const auto received = round.received.of(member);
    double added = 0;
    for (const std::size_t id : received) added += round.adds ? round.messages[id].bytes : 0;
    const auto count = std::max(round.sent.of(member).size(), received.size());
    const double end =
        own.last + static_cast<double>(count) * kPerMessage + added / kAddedPerSecond;
    if (own.round + 1 < std::ssize(rounds_)) {
      return push_begin(time, member, end);
    }
    ends_[time] = std::max(ends_[time], end);
    if (time + kPiecesUnderWay < ends_.size()) begin_time(time + kPiecesUnderWay, member, end);
  }

  std::vector<Round> rounds_;
  int members_;
  LinkSpeed link_;
  double between_;
  std::vector<std::vector<State>> states_;              // by time and member
  std::vector<std::vector<std::vector<double>>> came_;  // of early messages: by time, round, number
  std::vector<double> ends_;                            // by time
  std::vector<double> free_to_send_;
  std::vector<double> free_to_get_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::size_t pushed_ = 0;
};

// Returns the cost of `times` calls, each of which keeps a link busy for `busy` seconds.
SimulatedCall repeated(SimulatedCall call, std::size_t times, double busy) {
  const auto more = static_cast<double>(times) - 1;
  call.seconds += more * std::max(busy, call.seconds / static_cast<double>(kPiecesUnderWay));
  call.messages *= static_cast<std::int64_t>(times);
  call.bytes *= static_cast<std::int64_t>(times);
  return call;
}

SimulatedCall in_turn(const SimulatedCall& one, const SimulatedCall& other) {
  return {one.seconds + other.seconds, one.messages + other.messages, one.bytes + other.bytes};
}

}  // namespace

SimulatedNetwork::SimulatedNetwork(int members, const LinkSpeed& link)
    : members_(members), link_(link), peers_(static_cast<std::size_t>(members)) {}

SimulatedCall SimulatedNetwork::run(const Schedule& schedule, std::size_t bytes, std::size_t times,
                                    double between) {
  require(schedule.members == members_, "simulated network: a schedule for ", schedule.members,
          " members, of which there are ", members_);
  if (times == 0) return {};
  std::vector<Round> rounds = rounds_of(schedule, bytes);
  struct Sent {
    std::int64_t messages = 0;
    double bytes = 0;
  };
  std::vector<Sent> sent(peers_.size());
  for (const Round& round : rounds) {
    for (const Round::Message& each : round.messages) {
      Sent& by = sent[static_cast<std::size_t>(each.from)];
      ++by.messages;
      by.bytes += each.bytes;
      peers_[static_cast<std::size_t>(each.from)].push_back(each.to);
      peers_[static_cast<std::size_t>(each.to)].push_back(each.from);
    }
  }
  for (std::vector<int>& peers : peers_) {
    std::ranges::sort(peers);
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  }
  const std::size_t simulated = std::min(times, kSimulated);
  const std::vector<double> ends =
      Simulation(std::move(rounds), members_, link_, simulated, between).run();
  double seconds = ends.back();
  if (times > simulated) {
    const double regular = ends.back() - ends[simulated - 1 - kRegular];
    const double busy = std::ranges::max(sent, {}, &Sent::bytes).bytes / link_.bytes_per_second;
    seconds += static_cast<double>(times - simulated) *
               std::max({regular / static_cast<double>(kRegular), busy, between});
  }
  const auto all = static_cast<std::int64_t>(times);
  return {seconds, all * std::ranges::max(sent, {}, &Sent::messages).messages,
          all * static_cast<std::int64_t>(std::ranges::max(sent, {}, &Sent::bytes).bytes)};
}

SimulatedCall SimulatedNetwork::all_to_all(std::size_t bytes, std::size_t times, bool adds) {
  const std::int64_t others = members_ - 1;
  if (others == 0 || times == 0) return {};
  knows_all_ = true;
  const auto size = static_cast<double>(bytes);
  const double busy = static_cast<double>(others) * size / link_.bytes_per_second;
  const double seconds =
      (is_large(size) ? 2 : 1) * link_.latency + busy +
      static_cast<double>(others) * (kPerMessage + (adds ? size / kAddedPerSecond : 0));
  return repeated({seconds, others, others * static_cast<std::int64_t>(bytes)}, times, busy);
}

std::int64_t SimulatedNetwork::connections() const {
  if (knows_all_) return members_ - 1;
  return std::ssize(std::ranges::max(peers_, {}, &std::vector<int>::size));
}

SimulatedHosts::SimulatedHosts(int hosts, int members, const LinkSpeed& link)
    : hosts_(hosts),
      members_(static_cast<std::size_t>(members)),
      choice_(hosts, link),
      network_(hosts, link) {
  require(hosts >= 1 && members >= 1, "simulated hosts: ", hosts, " hosts of ", members,
          " members; both must be at least 1");
}

SimulatedCall SimulatedHosts::run(Verb::Kind kind, std::size_t bytes, bool halves) {
  if (hosts_ == 1 || bytes == 0) return {};
  const auto known = std::ranges::find_if(known_, [&](const Known& each) {
    return each.kind == kind && each.bytes == bytes && each.halves == halves;
  });
  if (known != known_.end()) return known->call;
  return known_.emplace_back(Known{kind, bytes, halves, simulated(kind, bytes, halves)}).call;
}

// Blocks of the canonical order are alike wherever hosts are: a few hosts show the number.
std::optional<std::size_t> SimulatedHosts::sums_of_host(bool halves) const {
  constexpr int kEnough = 8;
  std::vector<std::vector<int>> places;
  for (int host = 0; host < std::min(hosts_, kEnough); ++host) {
    const int own = static_cast<int>(members_);
    places.push_back(consecutive(host * own, own));
  }
  const reduce::ReductionPlan plan(places, halves ? ElementType::bfloat16 : ElementType::float32,
                                   ReduceOp::sum);
  if (plan.is_one_sum_each()) return std::nullopt;
  std::size_t most = 1;
  for (std::size_t host = 0; host < places.size(); ++host) {
    most = std::max(most, plan.subtrees(host).size());
  }
  return most;
}

SimulatedCall SimulatedHosts::simulated(Verb::Kind kind, std::size_t bytes, bool halves) {
  const auto hosts = static_cast<std::size_t>(hosts_);
  const bool gathers = kind == Verb::Kind::all_gather;
  require(gathers || kind == Verb::Kind::all_reduce || kind == Verb::Kind::reduce_scatter,
          "simulated hosts: only reductions and gathers are simulated");
  const bool scatters = kind == Verb::Kind::reduce_scatter;
  const std::optional<std::size_t> sums = gathers ? std::nullopt : sums_of_host(halves);
  // HostMembers::rows_of() has the same rows.
  const std::size_t rows = gathers     ? hosts * members_
                           : !scatters ? 1
                                       : hosts * (sums ? members_ : 1);
  const HostPieces pieces =
      members_ == 1 ? HostPieces(1, 0) : HostPieces(rows, ceil_div(bytes, rows));
  const std::size_t times = members_ == 1 ? 1 : pieces.count;
  const std::size_t piece = members_ == 1 ? bytes : ceil_div(bytes, times);
  const auto gather = [&](std::size_t size) {
    const double copied = members_ == 1 ? 0 : static_cast<double>(size) / kAddedPerSecond;
    return network_.run(choice_.all_gather(size), size, times, copied);
  };
  if (gathers) return gather(piece);
  // Half types with one member a host are added at once, too: each host has one sum.
  if (sums || halves) {
    const SimulatedCall scattered =
        network_.all_to_all(sums.value_or(1) * ceil_div(piece, hosts), times, /*adds=*/true);
    return scatters ? scattered : in_turn(scattered, gather(piece));
  }
  const Schedule& schedule =
      scatters ? choice_.reduce_scatter(piece, {}) : choice_.all_reduce(piece, {});
  // Each member adds up its part of the inputs of all members of its host.
  const double made = members_ == 1 ? 0 : static_cast<double>(piece) / kAddedPerSecond;
  return network_.run(schedule, piece, times, made);
}

}  // namespace lockstep::comm
