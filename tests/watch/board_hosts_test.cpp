#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/watch/board.h"
#include "tests/catch.h"
#include "tests/support/settings.h"
#include "tests/watch/board_world.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

/// Two hosts with boards of their own, and the same number of workers with a replica each. Nothing
/// passes between the boards but snapshots.
class TwoHosts {
 public:
  explicit TwoHosts(int workers_each = 1) : each_(workers_each) {
    for (int host = 0; host < 2; ++host) {
      boards_.push_back(std::make_unique<watch::Board>(2 * each_));
      boards_.back()->set_local(host * each_, each_, replicas());
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

  std::string of_host(int host) { return board(host).snapshot(host * each_, each_); }
  /// The other host's answer comes to `host`.
  void show(int host) {
    const std::uint64_t wanted = board(host).snapshots_wanted();
    board(host).show(of_host(1 - host), wanted);
  }
  void exchange() {
    show(0);
    show(1);
  }
  std::string found(int replica, bool settled_only = false) {
    const auto verdict = board_of(replica).examine(seat(replica), settled_only);
    return verdict ? verdict->text : "";
  }
  /// What it finds once snapshots were exchanged, and again because it has asked for them.
  std::string found_in_the_end(int replica, bool settled_only = false) {
    for (int i = 0; i < 3; ++i) {
      const std::string text = found(replica, settled_only);
      if (!text.empty()) return text;
      exchange();
    }
    return found(replica, settled_only);
  }
  std::string absent(int replica) { return board_of(replica).absentees(seat(replica)); }

 private:
  int each_;
  std::vector<std::unique_ptr<watch::Board>> boards_;
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

// Two hosts of three replicas run events of random groups, while they ask for snapshots and show
// them at random times. REQUIREs that nobody is ever said to be out of step.
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
  struct Sent {
    int to;
    std::string bytes;
    std::uint64_t answers;
  };
  std::vector<Sent> sent;
  std::array<std::uint64_t, 2> asked{};
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
    const int host = static_cast<int>(random() % 2);
    switch (random() % 8) {
      case 0:
        asked[static_cast<std::size_t>(host)] = hosts.board(host).snapshots_wanted();
        break;
      case 1:  // the other host answers, some time after it was asked
        sent.push_back({host, hosts.of_host(1 - host), asked[static_cast<std::size_t>(host)]});
        break;
      case 2:  // and the answer comes, maybe in another order
        if (sent.empty()) break;
        std::swap(sent[random() % sent.size()], sent.back());
        hosts.board(sent.back().to).show(sent.back().bytes, sent.back().answers);
        sent.pop_back();
        break;
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

TEST_CASE("no verdict rests on a snapshot that nobody has asked for since", "[board]") {
  TwoHosts hosts;
  hosts.start(0, kPair, kPsum);
  hosts.start(1, {1}, kPmean);
  hosts.seat(1).finish();
  hosts.exchange();
  SECTION("the member has returned, but nobody has answered") {
    hosts.seat(1).returned();
    const std::string early = hosts.of_host(1);
    const std::uint64_t before = hosts.board(0).snapshots_wanted();
    hosts.board(0).show(early, before);
    CHECK(hosts.found(0).empty());
    CHECK(hosts.board(0).snapshots_wanted() > before);
    // Newer ones, which were asked for before.
    for (int i = 0; i < 5; ++i) {
      hosts.board(0).show(hosts.of_host(1), before);
      CHECK(hosts.found(0).empty());
    }
    hosts.show(0);
    CHECK(hosts.found(0) == str("replica 1 has returned while replica 0 called ", kPsum));
  }
  SECTION("the member has come since") {
    hosts.start(1, {1}, kPmean);
    hosts.show(0);
    hosts.start(0, {0}, kPmean);
    hosts.seat(0).finish();
    hosts.seat(1).finish();
    hosts.start(1, kPair, kPsum);
    CHECK(hosts.found(0).empty());
    hosts.show(0);
    CHECK(hosts.found(0).empty());
  }
  SECTION("an old snapshot comes late") {
    const std::string early = hosts.of_host(1);
    hosts.start(1, kPair, kPsum);
    hosts.show(0);
    const std::string absent = hosts.absent(0);
    hosts.board(0).show(early, hosts.board(0).snapshots_wanted());
    CHECK(absent.empty());
    CHECK(hosts.absent(0).empty());
  }
}

TEST_CASE("a reason that has gone when it is read again is none", "[board]") {
  TwoHosts hosts;
  hosts.start(0, kPair, kPsum);
  hosts.start(1, kPair, kPsum, 2);
  hosts.start(1, {1, 0}, kPsum);  // it has caught an error, and waits elsewhere
  hosts.show(0);
  CHECK(hosts.found(0).empty());
  hosts.start(1, kPair, kPsum);
  hosts.show(0);
  CHECK(hosts.found(0).empty());
  hosts.show(0);
  CHECK(hosts.found(0).empty());
}

TEST_CASE("of the absent of other hosts is said what is known", "[board]") {
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
  const std::uint64_t wanted = hosts.board(0).snapshots_wanted();
  CHECK(wanted > 0);
  hosts.seat(3).threw("bad_alloc");
  hosts.start(1, kFour, kPsum);
  hosts.exchange();
  CHECK(hosts.absent(0) ==
        str("replica 2 has not arrived: it is running, and the last collective it finished is ",
            kPmean, ", its 1st; replica 3 has not arrived: it has thrown: bad_alloc"));
  hosts.board(0).set_stopped(1, true);
  CHECK_THAT(hosts.absent(0),
             ContainsSubstring("replica 1 has arrived, but its process is stopped by a signal"));
  REQUIRE(hosts.board(0).waits(0).size() == 1);
  CHECK_THAT(hosts.board(0).text_of(0, hosts.board(0).waits(0)[0]),
             ContainsSubstring("replica 0 waits in psum"));
  hosts.free_seat(3);
  hosts.start(0, {0, 3}, kPsum);
  hosts.show(0);
  CHECK(hosts.absent(0) ==
        "the member at place 1 of the group has not arrived: it has not started");
  hosts.board(0).set_local(0, 2, 4, std::vector<int>{0, 0, 1, 1});
  CHECK(hosts.absent(0) ==
        "the member at place 1 of the group on host 1 has not arrived: it has not started");
}

TEST_CASE("a host on its own wants no snapshots", "[board]") {
  watch::Board board(2);
  board.set_local(0, 2);
  const auto seat = board.take_seat(0, 1, 0, "0");
  const std::array<watch::GroupMember, 2> two = {watch::GroupMember{.id = 1, .worker = 0},
                                                 watch::GroupMember{.id = 2, .worker = 1}};
  const auto group = board.group(0, 5, two);
  seat->start(*group, 0, call_of(kPsum));
  CHECK(!board.examine(*seat));
  CHECK_THAT(board.absentees(*seat), ContainsSubstring("it has not started"));
  CHECK(board.snapshots_wanted() == 0);
  CHECK_THROWS_AS(board.show(board.snapshot(0, 2), 0), DataError);
  CHECK_THROWS_AS(board.set_local(1, 2), ValueError);
  CHECK_THROWS_AS(board.snapshot(0, 3), ValueError);
}

TEST_CASE("who has arrived in a group is known as long as another host holds it", "[board]") {
  TwoHosts hosts;
  hosts.exchange();
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
    hosts.exchange();
  }
}

TEST_CASE("groups of two hosts that nobody holds make room", "[board]") {
  TwoHosts hosts;
  std::size_t largest = 0;
  for (std::uint64_t call = 1; call <= 3000; ++call) {
    hosts.start(0, kPair, kPsum, call);
    hosts.start(1, kPair, kPsum, call);
    hosts.seat(0).finish();
    hosts.seat(1).finish();
    hosts.let_go();
    if (call % 10 == 0) hosts.exchange();
    if (call % 100 == 0) largest = std::max(largest, hosts.of_host(0).size());
  }
  CHECK(largest < 30000);
}

TEST_CASE("what has no room in a snapshot is left out, and no verdict rests on it", "[board]") {
  TwoHosts hosts;
  hosts.start(0, kPair, kPsum);
  hosts.seat(1).enter_map(call_of(kPmap), 20000);
  for (std::uint64_t i = 0; i < 20000; ++i) hosts.sit(1, 5000 + i, 1001, str("(1, ", i, ")"));
  CHECK(hosts.of_host(1).size() < watch::Board::kSnapshot);
  hosts.show(0);
  CHECK_THAT(hosts.absent(0), ContainsSubstring("replica 1 has not arrived: it is in pmap"));
  hosts.seat(1).returned();
  for (int i = 0; i < 3; ++i) {
    hosts.show(0);
    CHECK(hosts.found(0).empty());
  }
}

TEST_CASE("hosts in step are never said to be out of it, whenever snapshots come",
          "[board][bulk]") {
  testing::Sample sample("hosts in step");
  for (int round = 0; round < 8; ++round) {
    if (!sample.next()) continue;
    const unsigned seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937 random(seed);
    run_in_step(random);
  }
}

TEST_CASE("damaged snapshots are refused or shown, and never more than that", "[board][bulk]") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  TwoHosts hosts(2);
  fill_hosts(hosts);
  hosts.start(1, {1, 2}, kPsum);
  hosts.seat(2).fell_out("a verdict of its own");
  const std::string whole = hosts.of_host(1);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = whole;
    if (i % 4 == 0) {
      bytes.resize(random() % bytes.size());
    } else {
      for (unsigned flips = random() % 4; flips < 4; ++flips) {
        bytes[random() % bytes.size()] ^= static_cast<char>(1U << (random() % 8));
      }
    }
    TwoHosts fresh(2);
    watch::Board& board = fresh.board(0);
    fresh.start(0, kFour, kPsum);
    fresh.start(1, {1, 2}, kPsum);
    try {
      board.show(bytes, board.snapshots_wanted());
    } catch (const DataError&) {
      ++refused;
      CHECK_THAT(fresh.absent(0), ContainsSubstring("of which nothing is known"));
    }
    for (int turn = 0; turn < 2; ++turn) {
      for (const int member : {0, 1}) {
        (void)fresh.found(member);
        (void)fresh.absent(member);
      }
      try {
        board.show(whole, board.snapshots_wanted());
      } catch (const DataError&) {  // it had shown later versions
      }
    }
    (void)board.snapshot(0, 2);
  }
  CHECK(refused > 500);
}

TEST_CASE("snapshots are shown beside readers and taken beside writers", "[board]") {
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
  for (int i = 0; i < 2000 || looks < 200; ++i) hosts.show(0);
  over = true;
  writer.join();
  for (std::thread& reader : readers) reader.join();
  CHECK(alarms == 0);
  hosts.seat(1).returned();
  CHECK(hosts.found_in_the_end(0) == str("replica 1 has returned while replica 0 called ", kPsum));
}
