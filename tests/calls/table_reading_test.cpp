#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/calls/call_table.h"
#include "framework/calls/job_watch.h"
#include "tests/calls/table_world.h"
#include "tests/calls/two_hosts.h"
#include "tests/catch.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Fills two hosts with a job that has something of everything.
void fill_hosts(TwoHosts& hosts) {
  for (const int i : kFour) hosts.start(i, kFour, kPmean);
  for (const int i : kFour) hosts.slot(i).finish();
  hosts.start(2, {2, 3}, kPmean);
  hosts.sit(3, 77, 1003, "(3, 0)");
  hosts.slot(3).enter_map(call_of(kPmap), 1);
  hosts.start(0, {0, 2}, kPsum);
}

}  // namespace

TEST_CASE("a host on its own is read by nobody", "[call table]") {
  calls::CallTable table(2);
  table.set_local(0, 2);
  const auto slot = table.take_slot(0, 1, 0, "0");
  const std::array<calls::GroupMember, 2> two = {calls::GroupMember{.id = 1, .worker = 0},
                                                 calls::GroupMember{.id = 2, .worker = 1}};
  const auto group = table.group(0, 5, two);
  slot->start(*group, 0, call_of(kPsum));
  CHECK(!table.examine(*slot));
  CHECK_THAT(table.absentees(*slot), ContainsSubstring("it has not started"));
  CHECK(!table.spans_hosts());
  CHECK(table.readings_wanted() == 0);
  CHECK_THROWS_AS(table.set_local(1, 2), ValueError);
  CHECK_THROWS_AS(table.let_go({.worker = 2, .index = 0, .holds = 2}), DataError);
  CHECK_THROWS_AS(table.let_go({.worker = -1, .index = 0, .holds = 2}), DataError);
  CHECK_THROWS_AS(table.let_go({.worker = 0, .index = calls::CallTable::kGroups, .holds = 2}),
                  DataError);
}

TEST_CASE("a host's call table is read in pieces, and only what is new", "[call table]") {
  constexpr std::uint64_t kLanes = 20000;
  TwoHosts hosts;
  hosts.start(0, kPair, kPsum);
  hosts.slot(1).enter_map(call_of(kPmap), kLanes);
  for (std::uint64_t i = 0; i < kLanes; ++i) hosts.sit(1, 5000 + i, 1001, str("(1, ", i, ")"));
  const auto sizes = [&] {
    hosts.watch(0).want(1);
    hosts.deliver(1);
    std::vector<std::size_t> all;
    for (const calls::TableMessage& message : hosts.sent(0)) {
      all.push_back(std::get<calls::TableWords>(message).words.size());
    }
    hosts.deliver_all();
    return all;
  };
  const std::vector<std::size_t> all = sizes();
  CHECK(all.size() > 1);
  for (const std::size_t size : all) CHECK(size <= calls::TableCopy::kPiece);
  CHECK(sizes() == std::vector<std::size_t>{0});
  hosts.slot(1).returned();
  CHECK(sizes() < std::vector<std::size_t>{100});
  CHECK(hosts.found(0) == str("replica 1 has returned while replica 0 called ", kPsum));
}

TEST_CASE("a call table that comes in pieces is searched only when it is whole", "[call table]") {
  constexpr std::size_t kWord = 16;  // with its place
  const std::vector<Range> workers{{0, 1}, {1, 1}, {2, 1}};
  const std::array<calls::GroupMember, 2> pair{calls::GroupMember{.id = 1, .worker = 0},
                                               calls::GroupMember{.id = 2, .worker = 1}};
  std::size_t pieces = 1;
  for (std::size_t cut = 0; cut < pieces; ++cut) {
    INFO("the first piece has " << cut << " words");
    calls::CallTable first(3);
    calls::CallTable second(3);
    first.set_local(0, 1, 3);
    second.set_local(1, 1, 3);
    calls::JobWatch judge(0, workers, 3, first, [](std::size_t, const calls::TableMessage&) {});
    calls::TableCopy copy(workers);
    const auto words = [&] { return join(copy.read(second, 1), ""); };
    std::uint64_t reading = 0;
    const auto say = [&](std::size_t host, const std::string& text, bool is_last = true) {
      judge.hear(host, calls::TableWords{reading, text, is_last});
    };

    const auto waiting = first.take_slot(0, 1, 0, "0");
    const auto other = second.take_slot(1, 2, 0, "1");
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

    // In the next reading the host tells more after it has answered.
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

TEST_CASE("damaged words are refused or read, and never more than that", "[call table][bulk]") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  TwoHosts hosts(2);
  fill_hosts(hosts);
  hosts.start(1, {1, 2}, kPsum);
  hosts.slot(2).fell_out("a report of its own");
  hosts.watch(0).want(1);
  hosts.deliver(1);
  REQUIRE(hosts.sent(0).size() == 1);
  const auto whole = std::get<calls::TableWords>(hosts.sent(0).front());
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    calls::TableWords damaged = whole;
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
      CHECK(str("what host 1 says of its call table is damaged") == error.what());
    }
    for (std::uint64_t number = 1; number < 4; ++number) {
      for (const int member : {0, 1}) {
        (void)fresh.found(member);
        (void)fresh.absent(member);
      }
      fresh.watch(0).want(2);
      fresh.watch(0).hear(1, calls::TableWords{number, number == 2 ? whole.words : "", true});
    }
  }
  CHECK(refused > 500);
}

TEST_CASE("no host says anything of another's workers, and none but host 0 judges",
          "[call table]") {
  TwoHosts hosts(2);
  hosts.start(0, kFour, kPsum);
  // Host 1 says of host 0's workers what host 0 would say.
  calls::TableCopy own({{0, 2}, {2, 2}});
  for (const std::string& piece : own.read(hosts.table(0), 0)) {
    CHECK_THROWS_AS(hosts.watch(0).hear(1, calls::TableWords{1, piece, true}), DataError);
  }
  CHECK_THROWS_AS(hosts.watch(0).hear(1, calls::TableNews{}), DataError);
  CHECK_THROWS_WITH(
      [&] {
        const std::string piece(calls::TableCopy::kPiece, 'x');
        for (int i = 0; i < 1000; ++i) hosts.watch(0).hear(1, calls::TableWords{1, piece, false});
      }(),
      "host 1 says too much of its call table");
  CHECK_THROWS_AS(hosts.watch(0).hear(1, calls::TableLook{1}), DataError);
  CHECK_THROWS_AS(hosts.watch(1).hear(0, calls::TableWords{1, "", true}), DataError);
}

TEST_CASE("a wait that lasts is looked into, less and less often", "[call table]") {
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

TEST_CASE("while a host does not answer, the others' absent are told of", "[call table]") {
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

TEST_CASE("of more waits than a call table has room for words on, the oldest keeps its own",
          "[call table]") {
  const std::vector<Range> workers{{0, 1}, {1, 1}};
  calls::CallTable first(2);
  calls::CallTable second(2);
  first.set_local(0, 1, 2);
  second.set_local(1, 1, 2);
  calls::JobWatch judge(0, workers, 2, first, [](std::size_t, const calls::TableMessage&) {});
  calls::TableCopy copy(workers);
  std::uint64_t reading = 0;
  const auto read = [&] {
    judge.want(1);
    judge.hear(1, calls::TableWords{++reading, join(copy.read(second, 1), ""), true});
  };
  const auto absent = second.take_slot(1, 1000, 0, "1");
  std::vector<std::unique_ptr<calls::CallTable::Slot>> slots;
  std::vector<std::shared_ptr<calls::CallTable::Group>> groups;
  const auto wait = [&](std::uint64_t id) {
    const std::array<calls::GroupMember, 2> pair{calls::GroupMember{.id = id, .worker = 0},
                                                 calls::GroupMember{.id = 1000, .worker = 1}};
    groups.push_back(first.group(0, 5000 + id, pair));
    slots.push_back(first.take_slot(0, id, 0, str(id)));
    slots.back()->start(*groups.back(), 0, call_of(kPsum));
  };
  wait(1);
  read();
  const std::string text = first.absentees(*slots[0]);
  CHECK(text ==
        "replica 1 on host 1 has not arrived: it is running, and it has finished no collective");
  for (std::uint64_t id = 2; id < 100; ++id) wait(id);
  read();
  CHECK(first.absentees(*slots[0]) == text);
}

TEST_CASE("call tables are read beside writers", "[call table]") {
  TwoHosts hosts;
  std::atomic<bool> over{false};
  hosts.start(0, kPair, kPsum);
  const auto group = hosts.group(1, {1});
  std::thread writer([&] {
    while (!over) {
      hosts.slot(1).start(*group, 0, call_of(kPmean));
      hosts.slot(1).finish();
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
  hosts.slot(1).returned();
  CHECK(hosts.found_in_the_end(0) == str("replica 1 has returned while replica 0 called ", kPsum));
}
