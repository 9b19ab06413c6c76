#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/watch/board.h"
#include "framework/watch/job_watch.h"
#include "tests/catch.h"
#include "tests/support/settings.h"
#include "tests/watch/board_world.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

/// Two hosts with boards of their own, and the same number of workers with a replica each. The
/// launchers tell each other what a JobWatch sends, message by message.
class TwoHosts {
 public:
  explicit TwoHosts(int workers_each = 1) : each_(workers_each) {
    const std::vector<Range> workers{{0, each_}, {each_, each_}};
    for (std::size_t host = 0; host < 2; ++host) {
      boards_.push_back(std::make_unique<watch::Board>(2 * each_));
      boards_.back()->set_local(static_cast<int>(workers[host].offset), each_, replicas());
      watches_.push_back(std::make_unique<watch::JobWatch>(
          host, workers, replicas(), *boards_.back(),
          [this](std::size_t to, const watch::BoardMessage& message) {
            sent_[to].push_back(message);
          }));
    }
    for (int i = 0; i < replicas(); ++i) {
      members_.push_back({.id = 1000 + static_cast<std::uint64_t>(i), .worker = i});
      seats_.push_back(board_of(i).take_seat(i, members_.back().id, 0, str(i)));
    }
  }

  [[nodiscard]] int replicas() const { return 2 * each_; }
  watch::Board& board(int host) { return *boards_[static_cast<std::size_t>(host)]; }
  watch::Board& board_of(int replica) { return board(replica / each_); }
  watch::Board::Seat& seat(int replica) { return *seats_[static_cast<std::size_t>(replica)]; }
  void free_seat(int replica) { seats_[static_cast<std::size_t>(replica)].reset(); }
  void sit(int replica, std::uint64_t id, std::uint64_t parent, const std::string& name) {
    seats_.push_back(board_of(replica).take_seat(replica, id, parent, name));
  }

  std::shared_ptr<watch::Board::Group> group(int replica, const std::vector<int>& members,
                                             std::uint64_t salt = 1) {
    std::vector<watch::GroupMember> all;
    std::uint64_t key = salt;
    for (const int member : members) {
      all.push_back(members_[static_cast<std::size_t>(member)]);
      key = key * 1000 + static_cast<std::uint64_t>(member) + 1;
    }
    return board_of(replica).group(replica, key, all);
  }
  void start(int replica, const std::vector<int>& members, std::string_view text,
             std::uint64_t salt = 1) {
    held_.push_back(group(replica, members, salt));
    const auto place = std::ranges::find(members, replica) - members.begin();
    seat(replica).start(*held_.back(), static_cast<int>(place), call_of(text));
  }
  void let_go() { held_.clear(); }

  watch::JobWatch& watch(std::size_t host) { return *watches_[host]; }
  /// What was sent to a host and has not come yet.
  std::deque<watch::BoardMessage>& sent(std::size_t to) { return sent_[to]; }
  void deliver(std::size_t to) {
    const watch::BoardMessage message = sent_[to].front();
    sent_[to].pop_front();
    watch(to).hear(1 - to, message);
  }
  void deliver_all() {
    for (std::size_t to = 0; !sent_[0].empty() || !sent_[1].empty(); to = 1 - to) {
      while (!sent_[to].empty()) deliver(to);
    }
  }
  /// Whether the next reading has begun: the one before has shown a reason for a verdict.
  bool suspects() { return !sent_[1].empty(); }
  /// Host 0's launcher reads all boards, once, and tells both hosts what follows.
  void read() {
    if (sent_[1].empty()) watch(0).want(1);
    deliver(1);
    while (!sent_[0].empty()) deliver(0);
    while (!sent_[1].empty() && !std::holds_alternative<watch::BoardLook>(sent_[1].front())) {
      deliver(1);
    }
  }
  std::string found(int replica, bool settled_only = false) {
    const auto verdict = board_of(replica).examine(seat(replica), settled_only);
    return verdict ? verdict->text : "";
  }
  /// What it finds after two readings.
  std::string found_in_the_end(int replica, bool settled_only = false) {
    for (int i = 0; i < 2; ++i) read();
    return found(replica, settled_only);
  }
  std::string absent(int replica) { return board_of(replica).absentees(seat(replica)); }

 private:
  int each_;
  std::vector<std::unique_ptr<watch::Board>> boards_;
  std::vector<std::unique_ptr<watch::JobWatch>> watches_;
  std::array<std::deque<watch::BoardMessage>, 2> sent_;
  std::vector<watch::GroupMember> members_;
  std::vector<std::unique_ptr<watch::Board::Seat>> seats_;
  std::vector<std::shared_ptr<watch::Board::Group>> held_;
};

const std::vector<int> kPair = {0, 1};
const std::vector<int> kFour = {0, 1, 2, 3};

/// A job with something of everything on two hosts.
void fill_hosts(TwoHosts& hosts) {
  for (const int i : kFour) hosts.start(i, kFour, kPmean);
  for (const int i : kFour) hosts.seat(i).finish();
  hosts.start(2, {2, 3}, kPmean);
  hosts.sit(3, 77, 1003, "(3, 0)");
  hosts.seat(3).enter_map(call_of(kPmap), 1);
  hosts.start(0, {0, 2}, kPsum);
}

// Two hosts of three replicas run events of random groups, while their boards are read, and are
// told what follows, at random times. REQUIREs that nobody is ever said to be out of step.
void run_in_step(std::mt19937& random) {
  constexpr int kEach = 3;
  constexpr int kAll = 2 * kEach;
  TwoHosts hosts(kEach);
  struct Collective {
    std::vector<int> members;
    std::uint64_t salt;
    int arrived = 0;
  };
  std::vector<Collective> events(375);
  for (std::size_t i = 0; i < events.size(); ++i) {
    Collective& event = events[i];
    while (event.members.empty()) {
      for (int m = 0; m < kAll; ++m) {
        if (random() % 2 == 0) event.members.push_back(m);
      }
    }
    event.salt = 1 + i / 20;  // groups come and go
  }
  struct Replica {
    std::size_t at = 0;
    bool waits = false;
    std::uint64_t salt = 0;
    std::map<std::vector<int>, std::shared_ptr<watch::Board::Group>> groups;  // of this salt
  };
  std::vector<Replica> replicas(kAll);
  const auto step = [&](int number) {
    Replica& replica = replicas[static_cast<std::size_t>(number)];
    if (replica.waits) {
      if (events[replica.at].arrived < static_cast<int>(events[replica.at].members.size())) return;
      hosts.seat(number).finish();
      replica.waits = false;
      ++replica.at;
      return;
    }
    while (replica.at < events.size() &&
           std::ranges::count(events[replica.at].members, number) == 0) {
      ++replica.at;
    }
    if (replica.at == events.size()) return;
    Collective& event = events[replica.at];
    if (std::exchange(replica.salt, event.salt) != event.salt) replica.groups.clear();
    auto& group = replica.groups[event.members];
    if (group == nullptr) group = hosts.group(number, event.members, event.salt);
    const auto place = std::ranges::find(event.members, number) - event.members.begin();
    hosts.seat(number).start(*group, static_cast<int>(place), call_of(str("psum ", replica.at)));
    replica.waits = true;
    ++event.arrived;
  };
  int alarms = 0;
  const auto is_over = [&] {
    return std::ranges::all_of(replicas, [&](const Replica& r) { return r.at == events.size(); });
  };
  while (!is_over()) {
    const int number = static_cast<int>(random() % kAll);
    switch (random() % 8) {
      case 0:
        if (hosts.sent(0).empty() && hosts.sent(1).empty()) {
          hosts.watch(random() % 2).want(static_cast<int>(1 + random() % 2));
        }
        break;
      case 1:
      case 2: {
        const std::size_t to = random() % 2;
        if (!hosts.sent(to).empty()) hosts.deliver(to);
        break;
      }
      case 3:
      case 4:
        alarms += hosts.found(number, random() % 2 == 0).empty() ? 0 : 1;
        break;
      default:
        step(number);
    }
    REQUIRE(alarms == 0);
  }
}

}  // namespace

TEST_CASE("a mismatch of two hosts is found on both with the same text", "[board]") {
  TwoHosts hosts(2);
  hosts.start(0, kFour, kPsum);
  hosts.start(1, kFour, kPsum);
  hosts.start(2, kFour, kPmean);
  hosts.start(3, kFour, kPsum);
  for (const int i : kFour) CHECK(hosts.found(i, true).empty());
  const std::string text =
      str("replica 2 called ", kPmean, " while replicas 0, 1 and 3 called ", kPsum);
  CHECK(hosts.found_in_the_end(0, true) == text);
  CHECK(hosts.found_in_the_end(3, true) == text);
  CHECK(hosts.found(1) == text);
}

TEST_CASE("two hosts' cycles, ends and failures are found", "[board]") {
  TwoHosts hosts(2);
  std::string text;
  SECTION("a cycle over groups that the other host does not know") {
    hosts.start(0, {0, 2}, kPsum);
    hosts.start(2, {2, 3}, kPmean);
    hosts.start(3, {3, 0}, kPsum, 2);
    text = hosts.found_in_the_end(0);
    CHECK_THAT(text,
               ContainsSubstring("replica 2 called") && ContainsSubstring("replica 3 called"));
    CHECK(hosts.found_in_the_end(3) == text);
  }
  SECTION("it has returned") {
    hosts.start(0, {0, 2}, kPsum);
    hosts.seat(2).returned();
    text = str("replica 2 has returned while replica 0 called ", kPsum);
  }
  SECTION("it has thrown") {
    hosts.start(0, {0, 2}, kPsum);
    hosts.seat(2).threw("bad_alloc");
    text = str("replica 0 called ", kPsum, " while replica 2 has thrown: bad_alloc");
  }
  SECTION("it has ended with a mismatch of its own") {
    hosts.start(0, {0, 2}, kPsum);
    text = std::string(2000, 'x');
    hosts.seat(2).fell_out(text);
  }
  CHECK(hosts.found_in_the_end(0) == text);
}

TEST_CASE("no verdict rests on one reading", "[board]") {
  TwoHosts hosts;
  hosts.start(0, kPair, kPsum);
  hosts.start(1, {1}, kPmean);
  hosts.seat(1).finish();
  hosts.read();
  CHECK(!hosts.suspects());
  SECTION("the member has returned") {
    hosts.seat(1).returned();
    hosts.read();
    CHECK(hosts.found(0).empty());
    CHECK(hosts.suspects());
    hosts.read();
    CHECK(hosts.found(0) == str("replica 1 has returned while replica 0 called ", kPsum));
    hosts.read();
    CHECK(!hosts.suspects());
  }
  SECTION("the member waits elsewhere, but has come when it is read again") {
    hosts.start(1, {1, 0}, kPsum);
    hosts.start(0, {0, 1}, kPmean);
    hosts.read();
    hosts.start(1, kPair, kPsum);
    hosts.start(0, kPair, kPsum);
    hosts.read();
    CHECK(hosts.found(0).empty());
    CHECK(hosts.found(1).empty());
  }
}

TEST_CASE("a reason that has gone when it is read again is none", "[board]") {
  TwoHosts hosts;
  hosts.start(0, kPair, kPsum);
  hosts.start(1, kPair, kPsum, 2);
  hosts.start(1, {1, 0}, kPsum);  // it has caught an error, and waits elsewhere
  hosts.read();
  hosts.start(1, kPair, kPsum);
  for (int i = 0; i < 3; ++i) {
    hosts.read();
    CHECK(hosts.found(0).empty());
  }
}

TEST_CASE("a mismatch of two hosts waits for those who may yet be part of it", "[board]") {
  TwoHosts hosts(2);
  hosts.start(0, kFour, kPsum);
  hosts.start(2, kFour, kPmean);
  const auto begun = std::chrono::steady_clock::now();
  CHECK(hosts.found_in_the_end(0).empty());
  while (std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(300)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(hosts.found_in_the_end(0) ==
        str("replica 0 called ", kPsum, " while replica 2 called ", kPmean));
  CHECK(hosts.found(2) == hosts.found(0));
}

TEST_CASE("of the absent of other hosts is said what was read", "[board]") {
  TwoHosts hosts(2);
  for (const int i : kFour) hosts.start(i, kFour, kPmean);
  for (const int i : kFour) hosts.seat(i).finish();
  hosts.start(0, kFour, kPsum);
  CHECK(hosts.absent(0) ==
        str("replica 1 has not arrived: it is running, and the last collective it finished is ",
            kPmean,
            ", its 1st; replica 2 is on another host, of which nothing is known: it may not have "
            "arrived; replica 3 is on another host, of which nothing is known: it may not have "
            "arrived"));
  hosts.seat(3).threw("bad_alloc");
  hosts.start(1, kFour, kPsum);
  hosts.read();
  CHECK(hosts.absent(0) ==
        str("replica 2 on host 1 has not arrived: it is running, and the last collective it "
            "finished is ",
            kPmean, ", its 1st; replica 3 on host 1 has not arrived: it has thrown: bad_alloc"));
  hosts.board(0).set_stopped(1, true);
  hosts.read();
  CHECK_THAT(
      hosts.absent(0),
      ContainsSubstring("replica 1 on host 0 has arrived, but its process is stopped by a signal"));
  REQUIRE(hosts.board(0).waits(0).size() == 1);
  CHECK_THAT(hosts.board(0).text_of(hosts.board(0).waits(0)[0]),
             ContainsSubstring("replica 0 waits in psum"));
  hosts.free_seat(3);
  hosts.start(0, {0, 3}, kPsum);
  hosts.read();
  CHECK(hosts.absent(0) ==
        "the member at place 1 of the group on host 1 has not arrived: it has not started");
  // Of its own members a host knows more than was read.
  hosts.start(0, {0, 1}, kPsum);
  hosts.read();
  hosts.board(0).set_stopped(1, false);
  CHECK(hosts.absent(0) == str("replica 1 has not arrived: it waits in ", kPsum,
                               ", and the last collective it finished is ", kPmean, ", its 1st"));
}

TEST_CASE("a host on its own is read by nobody", "[board]") {
  watch::Board board(2);
  board.set_local(0, 2);
  const auto seat = board.take_seat(0, 1, 0, "0");
  const std::array<watch::GroupMember, 2> two = {watch::GroupMember{.id = 1, .worker = 0},
                                                 watch::GroupMember{.id = 2, .worker = 1}};
  const auto group = board.group(0, 5, two);
  seat->start(*group, 0, call_of(kPsum));
  CHECK(!board.examine(*seat));
  CHECK_THAT(board.absentees(*seat), ContainsSubstring("it has not started"));
  CHECK(!board.spans_hosts());
  CHECK(board.readings_wanted() == 0);
  CHECK_THROWS_AS(board.set_local(1, 2), ValueError);
  CHECK_THROWS_AS(board.let_go({.worker = 2, .slot = 0, .holds = 2}), DataError);
  CHECK_THROWS_AS(board.let_go({.worker = -1, .slot = 0, .holds = 2}), DataError);
  CHECK_THROWS_AS(board.let_go({.worker = 0, .slot = watch::Board::kGroups, .holds = 2}),
                  DataError);
}

TEST_CASE("who has arrived in a group is known as long as another host holds it", "[board]") {
  TwoHosts hosts;
  hosts.read();
  {
    const auto mine = hosts.group(0, kPair);
    hosts.seat(0).start(*mine, 0, call_of(kPsum));
    hosts.start(1, kPair, kPsum);
    hosts.seat(0).finish();
  }
  // Replica 0 has let it go, and waits for replica 1, which has yet to notice.
  hosts.start(0, kPair, kPmean, 2);
  for (int i = 0; i < 4; ++i) {
    CHECK(hosts.found(1).empty());
    CHECK(hosts.found(0).empty());
    hosts.read();
  }
}

TEST_CASE("groups of two hosts that nobody holds make room", "[board]") {
  TwoHosts hosts;
  std::uint64_t wanted = 0;
  // More than there is room for.
  for (std::uint64_t call = 1; call <= watch::Board::kGroups + 8000; ++call) {
    hosts.start(0, kPair, kPsum, call);
    hosts.start(1, kPair, kPsum, call);
    hosts.seat(0).finish();
    hosts.seat(1).finish();
    hosts.let_go();
    if (std::exchange(wanted, hosts.board(0).readings_wanted()) == wanted) continue;
    hosts.read();
    hosts.read();
  }
  CHECK(wanted > 0);
}

TEST_CASE("a host's board is read in pieces, and only what is new", "[board]") {
  constexpr std::uint64_t kLanes = 20000;
  TwoHosts hosts;
  hosts.start(0, kPair, kPsum);
  hosts.seat(1).enter_map(call_of(kPmap), kLanes);
  for (std::uint64_t i = 0; i < kLanes; ++i) hosts.sit(1, 5000 + i, 1001, str("(1, ", i, ")"));
  const auto sizes = [&] {
    hosts.watch(0).want(1);
    hosts.deliver(1);
    std::vector<std::size_t> all;
    for (const watch::BoardMessage& message : hosts.sent(0)) {
      all.push_back(std::get<watch::BoardWords>(message).words.size());
    }
    hosts.deliver_all();
    return all;
  };
  const std::vector<std::size_t> all = sizes();
  CHECK(all.size() > 1);
  for (const std::size_t size : all) CHECK(size <= watch::BoardCopy::kPiece);
  CHECK(sizes() == std::vector<std::size_t>{0});
  hosts.seat(1).returned();
  CHECK(sizes() < std::vector<std::size_t>{100});
  CHECK(hosts.found(0) == str("replica 1 has returned while replica 0 called ", kPsum));
}

TEST_CASE("a board that comes in pieces is searched only when it is whole", "[board]") {
  constexpr std::size_t kWord = 16;  // with its place
  const std::vector<Range> workers{{0, 1}, {1, 1}, {2, 1}};
  const std::array<watch::GroupMember, 2> pair{watch::GroupMember{.id = 1, .worker = 0},
                                               watch::GroupMember{.id = 2, .worker = 1}};
  std::size_t pieces = 1;
  for (std::size_t cut = 0; cut < pieces; ++cut) {
    INFO("the first piece has " << cut << " words");
    watch::Board first(3);
    watch::Board second(3);
    first.set_local(0, 1, 3);
    second.set_local(1, 1, 3);
    watch::JobWatch judge(0, workers, 3, first, [](std::size_t, const watch::BoardMessage&) {});
    watch::BoardCopy copy(workers);
    const auto words = [&] { return join(copy.read(second, 1), ""); };
    std::uint64_t reading = 0;
    const auto say = [&](std::size_t host, const std::string& text, bool is_last = true) {
      judge.hear(host, watch::BoardWords{reading, text, is_last});
    };

    const auto waiting = first.take_seat(0, 1, 0, "0");
    const auto other = second.take_seat(1, 2, 0, "1");
    const auto group = first.group(0, 5, pair);
    const auto its_group = second.group(1, 5, pair);
    waiting->start(*group, 0, call_of(kPsum));
    judge.want(1);
    ++reading;
    say(1, words());
    say(2, "");
    const std::string before = first.absentees(*waiting);
    CHECK(before ==
          "replica 1 on host 1 has not arrived: it is running, and it has finished no collective");

    // In the next reading its host has answered already when it tells more.
    other->start(*its_group, 1, call_of(kPsum));
    other->finish();
    judge.want(1);
    ++reading;
    say(1, "");
    const std::string more = words();
    pieces = more.size() / kWord;
    say(1, more.substr(0, cut * kWord), /*is_last=*/false);
    say(2, "");
    CHECK(first.absentees(*waiting) == before);
    say(1, more.substr(cut * kWord));
    judge.want(1);
    ++reading;
    say(1, "");
    say(2, "");
    CHECK(first.absentees(*waiting).empty());
  }
  CHECK(pieces > 3);
}

TEST_CASE("a verdict of one host is told to the others, though its members have gone on",
          "[board]") {
  TwoHosts hosts(2);
  hosts.start(2, kFour, kPmean);
  hosts.start(3, kFour, kPsum);
  const std::string text = str("replica 2 called ", kPmean, " while replica 3 called ", kPsum);
  CHECK(hosts.found(2) == text);
  CHECK(hosts.found(3) == text);
  for (const int member : {2, 3}) {
    hosts.start(member, {2, 3}, kPsum);
    hosts.seat(member).finish();
  }
  hosts.start(0, kFour, kPsum);
  CHECK(hosts.found(0).empty());
  hosts.read();
  CHECK(hosts.found(0) == text);
  hosts.start(1, kFour, kPsum);  // who comes later knows it, too
  CHECK(hosts.found(1) == text);
}

TEST_CASE("hosts in step are never said to be out of it, whenever they are read", "[board][bulk]") {
  testing::Sample sample("hosts in step");
  for (int round = 0; round < 8; ++round) {
    if (!sample.next()) continue;
    const unsigned seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937 random(seed);
    run_in_step(random);
  }
}

TEST_CASE("damaged words are refused or read, and never more than that", "[board][bulk]") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  TwoHosts hosts(2);
  fill_hosts(hosts);
  hosts.start(1, {1, 2}, kPsum);
  hosts.seat(2).fell_out("a verdict of its own");
  hosts.watch(0).want(1);
  hosts.deliver(1);
  REQUIRE(hosts.sent(0).size() == 1);
  const auto whole = std::get<watch::BoardWords>(hosts.sent(0).front());
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    watch::BoardWords damaged = whole;
    std::string& bytes = damaged.words;
    if (i % 4 == 0) {
      bytes.resize(random() % bytes.size());
    } else {
      for (unsigned flips = random() % 4; flips < 4; ++flips) {
        bytes[random() % bytes.size()] ^= static_cast<char>(1U << (random() % 8));
      }
    }
    TwoHosts fresh(2);
    fresh.start(0, kFour, kPsum);
    fresh.start(1, {1, 2}, kPsum);
    fresh.watch(0).want(1);
    try {
      fresh.watch(0).hear(1, damaged);
    } catch (const DataError& error) {
      ++refused;
      CHECK(str("what host 1 says of its board is damaged") == error.what());
    }
    for (std::uint64_t number = 1; number < 4; ++number) {
      for (const int member : {0, 1}) {
        (void)fresh.found(member);
        (void)fresh.absent(member);
      }
      fresh.watch(0).want(2);
      fresh.watch(0).hear(1, watch::BoardWords{number, number == 2 ? whole.words : "", true});
    }
  }
  CHECK(refused > 500);
}

TEST_CASE("no host says anything of another's workers, and none but host 0 judges", "[board]") {
  TwoHosts hosts(2);
  hosts.start(0, kFour, kPsum);
  // What host 0 would say of its own.
  watch::BoardCopy own({{0, 2}, {2, 2}});
  for (const std::string& piece : own.read(hosts.board(0), 0)) {
    CHECK_THROWS_AS(hosts.watch(0).hear(1, watch::BoardWords{1, piece, true}), DataError);
  }
  CHECK_THROWS_AS(hosts.watch(0).hear(1, watch::BoardNews{}), DataError);
  CHECK_THROWS_AS(hosts.watch(0).hear(1, watch::BoardLook{1}), DataError);
  CHECK_THROWS_AS(hosts.watch(1).hear(0, watch::BoardWords{1, "", true}), DataError);
}

TEST_CASE("a wait that lasts is looked into, less and less often", "[board]") {
  TwoHosts hosts;
  const auto begun = std::chrono::steady_clock::now();
  hosts.start(1, kPair, kPsum);
  std::vector<std::chrono::milliseconds> asked;
  while (asked.size() < 3) {
    hosts.watch(1).progress();
    if (!hosts.sent(0).empty()) {
      asked.push_back(std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::steady_clock::now() - begun));
      hosts.deliver_all();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  CHECK(asked[0] >= std::chrono::milliseconds(50));
  CHECK(asked[1] >= std::chrono::milliseconds(100));
  CHECK(asked[2] >= std::chrono::milliseconds(200));
}

TEST_CASE("while a host does not answer, the others' absent are told of", "[board]") {
  TwoHosts hosts;
  hosts.start(0, kPair, kPsum);
  hosts.watch(0).want(1);
  CHECK_THAT(hosts.absent(0), ContainsSubstring("replica 1 is on another host, of which nothing"));
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  hosts.watch(0).want(1);
  CHECK(hosts.absent(0) ==
        "replica 1 is on host 1, of which nothing is known: it may not have arrived");
  CHECK(hosts.sent(1).size() == 1);
}

TEST_CASE("of more waits than a board has room for words on, the oldest keeps its own", "[board]") {
  const std::vector<Range> workers{{0, 1}, {1, 1}};
  watch::Board first(2);
  watch::Board second(2);
  first.set_local(0, 1, 2);
  second.set_local(1, 1, 2);
  watch::JobWatch judge(0, workers, 2, first, [](std::size_t, const watch::BoardMessage&) {});
  watch::BoardCopy copy(workers);
  std::uint64_t reading = 0;
  const auto read = [&] {
    judge.want(1);
    judge.hear(1, watch::BoardWords{++reading, join(copy.read(second, 1), ""), true});
  };
  const auto absent = second.take_seat(1, 1000, 0, "1");
  std::vector<std::unique_ptr<watch::Board::Seat>> seats;
  std::vector<std::shared_ptr<watch::Board::Group>> groups;
  const auto wait = [&](std::uint64_t id) {
    const std::array<watch::GroupMember, 2> pair{watch::GroupMember{.id = id, .worker = 0},
                                                 watch::GroupMember{.id = 1000, .worker = 1}};
    groups.push_back(first.group(0, 5000 + id, pair));
    seats.push_back(first.take_seat(0, id, 0, str(id)));
    seats.back()->start(*groups.back(), 0, call_of(kPsum));
  };
  wait(1);
  read();
  const std::string text = first.absentees(*seats[0]);
  CHECK(text ==
        "replica 1 on host 1 has not arrived: it is running, and it has finished no collective");
  for (std::uint64_t id = 2; id < 100; ++id) wait(id);
  read();
  CHECK(first.absentees(*seats[0]) == text);
}

TEST_CASE("boards are read beside writers", "[board]") {
  TwoHosts hosts;
  std::atomic<bool> over{false};
  hosts.start(0, kPair, kPsum);
  const auto group = hosts.group(1, {1});
  std::thread writer([&] {
    while (!over) {
      hosts.seat(1).start(*group, 0, call_of(kPmean));
      hosts.seat(1).finish();
    }
  });
  std::atomic<int> alarms{0};
  std::atomic<int> looks{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!over) {
        if (!hosts.found(0).empty()) ++alarms;
        (void)hosts.absent(0);
        ++looks;
      }
    });
  }
  for (int i = 0; i < 2000 || looks < 200; ++i) hosts.read();
  over = true;
  writer.join();
  for (std::thread& reader : readers) reader.join();
  CHECK(alarms == 0);
  hosts.seat(1).returned();
  CHECK(hosts.found_in_the_end(0) == str("replica 1 has returned while replica 0 called ", kPsum));
}
