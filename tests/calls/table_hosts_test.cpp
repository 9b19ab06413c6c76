#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "framework/base/text.h"
#include "framework/calls/call_table.h"
#include "tests/calls/table_world.h"
#include "tests/calls/two_hosts.h"
#include "tests/catch.h"
#include "tests/support/settings.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Runs events of random groups on two hosts of three replicas, while their call tables are read,
// and findings are told, at random times. REQUIREs that nobody is ever said to be out of step.
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
    std::map<std::vector<int>, std::shared_ptr<calls::CallTable::Group>> groups;  // with this salt
  };
  std::vector<Replica> replicas(kAll);
  const auto step = [&](int number) {
    Replica& replica = replicas[static_cast<std::size_t>(number)];
    if (replica.waits) {
      if (events[replica.at].arrived < static_cast<int>(events[replica.at].members.size())) return;
      hosts.slot(number).finish();
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
    hosts.slot(number).start(*group, static_cast<int>(place), call_of(str("psum ", replica.at)));
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

TEST_CASE("a mismatch of two hosts is found on both with the same text", "[call table]") {
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

TEST_CASE("two hosts' cycles, ends and failures are found", "[call table]") {
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
    hosts.slot(2).returned();
    text = str("replica 2 has returned while replica 0 called ", kPsum);
  }
  SECTION("it has thrown") {
    hosts.start(0, {0, 2}, kPsum);
    hosts.slot(2).threw("bad_alloc");
    text = str("replica 0 called ", kPsum, " while replica 2 has thrown: bad_alloc");
  }
  SECTION("it has ended with a mismatch of its own") {
    hosts.start(0, {0, 2}, kPsum);
    text = std::string(2000, 'x');
    hosts.slot(2).fell_out(text);
  }
  CHECK(hosts.found_in_the_end(0) == text);
}

TEST_CASE("no report rests on one reading", "[call table]") {
  TwoHosts hosts;
  hosts.start(0, kPair, kPsum);
  hosts.start(1, {1}, kPmean);
  hosts.slot(1).finish();
  hosts.read();
  CHECK(!hosts.suspects());
  SECTION("the member has returned") {
    hosts.slot(1).returned();
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

TEST_CASE("a reason that has gone when it is read again is none", "[call table]") {
  TwoHosts hosts;
  hosts.start(0, kPair, kPsum);
  hosts.start(1, kPair, kPsum, 2);
  hosts.start(1, {1, 0}, kPsum);  // replica 1 has caught an error, and waits elsewhere
  hosts.read();
  hosts.start(1, kPair, kPsum);
  for (int i = 0; i < 3; ++i) {
    hosts.read();
    CHECK(hosts.found(0).empty());
  }
}

TEST_CASE("a mismatch of two hosts waits for those who may yet be part of it", "[call table]") {
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

TEST_CASE("of the absent of other hosts is said what was read", "[call table]") {
  TwoHosts hosts(2);
  for (const int i : kFour) hosts.start(i, kFour, kPmean);
  for (const int i : kFour) hosts.slot(i).finish();
  hosts.start(0, kFour, kPsum);
  CHECK(hosts.absent(0) ==
        str("replica 1 has not arrived: it is running, and the last collective it finished is ",
            kPmean,
            ", its 1st; replica 2 is on another host, of which nothing is known: it may not have "
            "arrived; replica 3 is on another host, of which nothing is known: it may not have "
            "arrived"));
  hosts.slot(3).threw("bad_alloc");
  hosts.start(1, kFour, kPsum);
  hosts.read();
  CHECK(hosts.absent(0) ==
        str("replica 2 on host 1 has not arrived: it is running, and the last collective it "
            "finished is ",
            kPmean, ", its 1st; replica 3 on host 1 has not arrived: it has thrown: bad_alloc"));
  hosts.table(0).set_stopped(1, true);
  hosts.read();
  CHECK_THAT(
      hosts.absent(0),
      ContainsSubstring("replica 1 on host 0 has arrived, but its process is stopped by a signal"));
  REQUIRE(hosts.table(0).waits(0).size() == 1);
  CHECK_THAT(hosts.table(0).text_of(hosts.table(0).waits(0)[0]),
             ContainsSubstring("replica 0 waits in psum"));
  hosts.free_slot(3);
  hosts.start(0, {0, 3}, kPsum);
  hosts.read();
  CHECK(hosts.absent(0) ==
        "the member at place 1 of the group on host 1 has not arrived: it has not started");
  // A host knows more of its own members than was read.
  hosts.start(0, {0, 1}, kPsum);
  hosts.read();
  hosts.table(0).set_stopped(1, false);
  CHECK(hosts.absent(0) == str("replica 1 has not arrived: it waits in ", kPsum,
                               ", and the last collective it finished is ", kPmean, ", its 1st"));
}

TEST_CASE("who has arrived in a group is known as long as another host holds it", "[call table]") {
  TwoHosts hosts;
  hosts.read();
  {
    const auto mine = hosts.group(0, kPair);
    hosts.slot(0).start(*mine, 0, call_of(kPsum));
    hosts.start(1, kPair, kPsum);
    hosts.slot(0).finish();
  }
  // Replica 0 has let the group go, and waits for replica 1, which has yet to notice.
  hosts.start(0, kPair, kPmean, 2);
  for (int i = 0; i < 4; ++i) {
    CHECK(hosts.found(1).empty());
    CHECK(hosts.found(0).empty());
    hosts.read();
  }
}

TEST_CASE("groups of two hosts that nobody holds make room", "[call table]") {
  TwoHosts hosts;
  std::uint64_t wanted = 0;
  // The groups are more than there is room for.
  for (std::uint64_t call = 1; call <= calls::CallTable::kGroups + 8000; ++call) {
    hosts.start(0, kPair, kPsum, call);
    hosts.start(1, kPair, kPsum, call);
    hosts.slot(0).finish();
    hosts.slot(1).finish();
    hosts.let_go();
    if (std::exchange(wanted, hosts.table(0).readings_wanted()) == wanted) continue;
    hosts.read();
    hosts.read();
  }
  CHECK(wanted > 0);
}

TEST_CASE("a report of one host is told to the others, though its members have gone on",
          "[call table]") {
  TwoHosts hosts(2);
  hosts.start(2, kFour, kPmean);
  hosts.start(3, kFour, kPsum);
  const std::string text = str("replica 2 called ", kPmean, " while replica 3 called ", kPsum);
  CHECK(hosts.found(2) == text);
  CHECK(hosts.found(3) == text);
  for (const int member : {2, 3}) {
    hosts.start(member, {2, 3}, kPsum);
    hosts.slot(member).finish();
  }
  hosts.start(0, kFour, kPsum);
  CHECK(hosts.found(0).empty());
  hosts.read();
  CHECK(hosts.found(0) == text);
  hosts.start(1, kFour, kPsum);  // a later member knows the report, too
  CHECK(hosts.found(1) == text);
}

TEST_CASE("hosts in step are never said to be out of it, whenever they are read",
          "[call table][bulk]") {
  testing::Sample sample("hosts in step");
  for (int round = 0; round < 8; ++round) {
    if (!sample.next()) continue;
    const unsigned seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937 random(seed);
    run_in_step(random);
  }
}
