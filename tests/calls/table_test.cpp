#include <string>
#include <string_view>
#include <vector>

#include "framework/base/text.h"
#include "framework/calls/call_table.h"
#include "framework/calls/table_memory.h"
#include "tests/calls/table_world.h"
#include "tests/catch.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr std::string_view kSmallPsum = "psum over 'data' at model.cpp:44 with (32, 10) float32";
const std::vector<int> kAll = {0, 1, 2, 3};

}  // namespace

TEST_CASE("members who agree find nothing, whoever runs still", "[call table]") {
  TableWorld world(4, any_workers());
  CHECK(world.found(0).empty());
  for (const int member : kAll) {
    world.start(member, kAll, kPsum);
    for (int other = 0; other < 4; ++other) CHECK(world.found(other).empty());
  }
  // Some have gone on to their next call, one has returned: the others have yet to notice that the
  // first call is complete.
  world.finish_all({0, 1, 2});
  world.start(0, kAll, kPmean);
  world.slot(2).returned();
  CHECK(world.found(3).empty());
  CHECK(world.call_table().absentees(world.slot(3)).empty());
}

TEST_CASE("another operation or shape is a mismatch that shows both sides", "[call table]") {
  TableWorld world(4, any_workers());
  const std::string_view other = GENERATE(kPmean, kSmallPsum);
  world.start_all(kAll, kPsum);
  world.finish_all(kAll);
  world.start(0, kAll, kPsum);
  world.start(2, kAll, other);
  // A replica that runs may yet be part of it.
  CHECK(world.found(0, true).empty());
  SECTION("all are there") {
    world.start(3, kAll, kPsum);
    world.start(1, kAll, kPsum);
    for (const int member : kAll) {
      CHECK(world.found(member, true) ==
            str("mismatch: replica 2 called ", other, " while replicas 0, 1 and 3 called ", kPsum));
    }
  }
  SECTION("nobody is waited for") {
    const std::string both =
        str("mismatch: replica 0 called ", kPsum, " while replica 2 called ", other);
    CHECK(world.found(0) == both);
    CHECK(world.found(2) == both);
  }
}

TEST_CASE("the first report on a call is everyone's, also when its cause has gone on",
          "[call table]") {
  TableWorld world(4, any_workers());
  world.start(0, kAll, kPsum);
  world.start(2, kAll, kPmean);
  const std::string first =
      str("mismatch: replica 0 called ", kPsum, " while replica 2 called ", kPmean);
  CHECK(world.found(2) == first);
  world.start(2, {1, 2}, kPmean);
  world.start(3, kAll, kPsum);
  CHECK(world.found(0) == first);
  CHECK(world.found(3, true) == first);
  // The report is that call's alone.
  world.start(1, {1, 2}, kPmean);
  CHECK(world.found(1).empty());
}

TEST_CASE("whoever comes by another way to the same calls is told the same", "[call table]") {
  TableWorld world(4, any_workers());
  world.start(0, {0, 1}, kPsum);
  world.start(1, {1, 2}, kPmean);
  world.start(2, {0, 2}, kSmallPsum);
  world.start(3, {0, 3}, kPsum);
  const std::string found = world.found(1);
  CHECK(!found.empty());
  for (const int member : {0, 2, 3}) CHECK(world.found(member) == found);
}

TEST_CASE("who waits in a call of others is on its way as long as that may end", "[call table]") {
  TableWorld world(3, any_workers());
  world.start(0, {0, 1, 2}, kPsum);
  world.start(1, {0, 1, 2}, kPmean);
  world.start(2, {2}, kPsum);
  CHECK(world.found(0, true).empty());
  world.finish_all({2});
  world.start(2, {0, 1, 2}, kPsum);
  CHECK(world.found(0, true) ==
        str("mismatch: replica 1 called ", kPmean, " while replicas 0 and 2 called ", kPsum));
}

TEST_CASE("the call table keeps the reports on the last calls", "[call table]") {
  TableWorld world(2, any_workers());
  const auto differ = [&] {
    world.start(0, {0, 1}, kPsum);
    world.start(1, {0, 1}, kPmean);
    CHECK(!world.found(0).empty());
  };
  for (int i = 0; i < 200; ++i) differ();
  const std::string last = world.found(0);
  world.slot(1).finish();
  CHECK(world.found(0) == last);
}

TEST_CASE("who waits for one that a mismatch has ended ends with the same", "[call table]") {
  TableWorld world(3, any_workers());
  const std::string text = str("replica 1 called ", kPmean, " while replica 0 called ", kPsum);
  world.start(2, {1, 2}, kPsum);
  SECTION("of which the call table still knows") {
    world.start(0, {0, 1}, kPsum);
    world.start(1, {0, 1}, kPmean);
    const std::string found = world.found(0);
    world.slot(1).fell_out(found.substr(std::string("mismatch: ").size()));
    CHECK(world.found(2) == found);
  }
  SECTION("of which it has the text only") {
    const std::string longer = text + std::string(2000, 'x');
    world.slot(1).fell_out(longer);
    CHECK(world.found(2) == "mismatch: " + longer);
  }
}

TEST_CASE("calls that differ in what their texts don't show say so", "[call table]") {
  TableWorld world(2, any_workers());
  const std::string longer(600, 'x');
  world.start(0, {0, 1}, longer + "a");
  world.start(1, {0, 1}, longer + "b");
  const std::string shown = std::string(calls::CallRecord::kShown - 3, 'x') + "...";
  CHECK(world.found(0) == str("mismatch: replica 0 called ", shown, " while replica 1 called ",
                              shown, "; the calls differ in what is not shown"));
}

TEST_CASE("who skips a collective is found in its next one", "[call table]") {
  TableWorld world(3, any_workers());
  world.start(0, {0, 1, 2}, kPsum);
  world.start(1, {0, 1, 2}, kPsum);
  CHECK(world.found(0).empty());
  world.start(2, {0, 1, 2}, kPmean);
  CHECK(world.found(1) ==
        str("mismatch: replica 2 called ", kPmean, " while replicas 0 and 1 called ", kPsum));
}

TEST_CASE("waiting for who has returned is a mismatch", "[call table]") {
  TableWorld world(4, any_workers());
  world.start_all(kAll, kPmean);
  world.finish_all(kAll);
  world.slot(1).returned();
  world.start(0, kAll, kPsum);
  world.start(3, kAll, kPsum);
  CHECK(world.found(0, true).empty());
  world.slot(2).returned();
  CHECK(world.found(3, true) ==
        str("mismatch: replicas 1 and 2 have returned while replicas 0 and 3 called ", kPsum));
}

TEST_CASE("waiting for who has thrown is a failure, with what was thrown", "[call table]") {
  TableWorld world(4, any_workers());
  world.start(0, kAll, kPsum);
  world.slot(1).threw("ValueError: no such class: 11");
  world.slot(2).returned();
  const std::string text =
      "failed: replica 2 has returned and replica 0 called psum over 'data' at "
      "model.cpp:44 with (64, 10) float32 while replica 1 has thrown: "
      "ValueError: no such class: 11";
  CHECK(world.found(0) == text);
}

TEST_CASE("who has thrown because another has is left out", "[call table]") {
  TableWorld world(3, any_workers());
  world.start(0, {0, 1, 2}, kPsum);
  world.slot(1).threw("Aborted: replica 2 failed: bad_alloc");
  world.slot(2).threw("bad_alloc");
  CHECK(world.found(0) ==
        str("failed: replica 0 called ", kPsum, " while replica 2 has thrown: bad_alloc"));
}

TEST_CASE("who waits for one that has lost a replica has lost it, too", "[call table]") {
  TableWorld world(4, any_workers());
  world.start(0, kAll, kPsum);
  world.slot(1).threw("ReplicaLost: replica 3's process has ended");
  world.slot(2).threw("Aborted: of no interest");
  CHECK(world.found(0) == str("lost: replica 0 called ", kPsum,
                              " while replica 1 has thrown: ReplicaLost: replica 3's process has "
                              "ended"));
}

TEST_CASE("a loss is no cause where there is another", "[call table]") {
  TableWorld world(3, any_workers());
  world.start(0, {0, 1, 2}, kPsum);
  world.slot(1).threw("ReplicaLost: replica 2's process has ended");
  world.slot(2).threw("bad_alloc");
  CHECK(world.found(0) ==
        str("failed: replica 0 called ", kPsum, " while replica 2 has thrown: bad_alloc"));
}

TEST_CASE("who leaves a call unfinished by throwing fails those who wait in it", "[call table]") {
  TableWorld world(3, any_workers());
  world.start_all({0, 1, 2}, kPsum);
  world.finish_all({2});
  world.slot(2).threw("later: not the cause");
  CHECK(world.found(0).empty());
  world.slot(1).threw("bad_alloc");
  CHECK(world.found(0) ==
        str("failed: replica 0 called ", kPsum, " while replica 1 has thrown: bad_alloc"));
}

TEST_CASE("members who wait for each other in different groups are a mismatch", "[call table]") {
  TableWorld world(4, any_workers());
  world.start(1, kAll, kPmean);
  world.start(0, {0, 1}, kPsum);
  const std::string text =
      str("mismatch: replica 0 called ", kPsum, " while replica 1 called ", kPmean);
  CHECK(world.found(0, true).empty());
  CHECK(world.found(0) == text);
  CHECK(world.found(1) == text);
}

TEST_CASE("a cycle over three groups is found from each of its members and from outside",
          "[call table]") {
  TableWorld world(4, any_workers());
  world.start(0, {0, 1}, "psum over 'a' at f.cpp:1");
  world.start(1, {1, 2}, "psum over 'b' at f.cpp:2");
  CHECK(world.found(0).empty());
  world.start(2, {2, 0}, "psum over 'c' at f.cpp:3");
  const std::string cycle =
      "mismatch: replica 0 called psum over 'a' at f.cpp:1 and replica 1 called psum over 'b' at "
      "f.cpp:2 while replica 2 called psum over 'c' at f.cpp:3";
  for (const int member : {0, 1, 2}) CHECK(world.found(member) == cycle);
  world.start(3, {3, 1}, "psum over 'd' at f.cpp:4");
  CHECK(world.found(3) == cycle);
}

TEST_CASE("calls that look alike in a cycle say which they are", "[call table]") {
  TableWorld world(3, any_workers());
  world.start(0, {0, 1}, kPsum);
  world.start(1, {1, 2}, kPsum);
  world.start(2, {2, 0}, kPsum);
  CHECK(world.found(1) == str("mismatch: replica 0 called ", kPsum,
                              " (1st of replicas 0 and 1) and replica 1 called ", kPsum,
                              " (1st of replicas 1 and 2) while replica 2 called ", kPsum,
                              " (1st of replicas 0 and 2)"));
}

TEST_CASE("who waits for another call that can complete is only late", "[call table]") {
  TableWorld world(4, any_workers());
  world.start(0, kAll, kPsum);
  world.start(1, {1, 2}, kPmean);
  CHECK(world.found(0).empty());
  world.start(2, {1, 2}, kPmean);
  CHECK(world.found(0).empty());
  // A call can't complete if a chain of waits leads to a member that has returned.
  TableWorld chain(4, any_workers());
  chain.start(0, {0, 1}, "a");
  chain.start(1, {1, 2}, "b");
  chain.start(2, {2, 3}, "c");
  CHECK(chain.found(0).empty());
  chain.slot(3).returned();
  CHECK(chain.found(0) ==
        "mismatch: replica 3 has returned, replica 0 called a and replica 1 "
        "called b while replica 2 called c");
}

TEST_CASE("the absent are named with what they do and their last collective", "[call table]") {
  TableWorld world(4, any_workers());
  for (int i = 0; i < 12; ++i) {
    world.start_all(kAll, kPmean);
    world.finish_all(kAll);
  }
  CHECK(world.call_table().absentees(world.slot(0)).empty());
  world.start(0, kAll, kPsum);
  world.start(1, kAll, kPsum);
  world.start(2, {2, 3}, kSmallPsum);
  CHECK(world.call_table().absentees(world.slot(0)) ==
        str("replica 2 has not arrived: it waits in ", kSmallPsum,
            ", and the last collective it finished is ", kPmean,
            ", its 12th; replica 3 has not arrived: it is running, and the last collective it "
            "finished is ",
            kPmean, ", its 12th"));
  world.slot(2).finish();
  world.slot(2).returned();
  world.slot(3).enter_map(call_of(kPmap), 4);
  CHECK(world.call_table().absentees(world.slot(1)) ==
        str("replica 2 has not arrived: it has returned, and the last collective it finished is ",
            kSmallPsum, ", its 13th; replica 3 has not arrived: it is in ", kPmap,
            ", and the last collective it finished is ", kPmean, ", its 12th"));
}

TEST_CASE("of the absent who have not begun their parents are named", "[call table]") {
  TableWorld world(3, any_workers(), 2);
  const int child = world.add_child(0);
  const int peer = world.add_child(1, false);
  world.start(child, {child, peer}, kPsum);
  CHECK(world.call_table().absentees(world.slot(child)) ==
        "the member at place 1 of the group has not arrived: it has not started, and replica 1, "
        "which would run it, is running, and it has finished no collective");
  world.start(0, {0, 1, 2}, kPsum);
  CHECK(world.call_table().absentees(world.slot(0)) ==
        "replica 1 has not arrived: it is running, and it has finished no collective; the member "
        "at place 2 of the group has not arrived: it has not started");
}

TEST_CASE("a message about many members stays short", "[call table]") {
  constexpr int kMany = 100;
  TableWorld world(kMany, any_workers());
  std::vector<int> members;
  for (int i = 0; i < kMany; ++i) members.push_back(i);
  world.start(0, members, kPsum);
  const std::string absent = world.call_table().absentees(world.slot(0));
  CHECK_THAT(absent, ContainsSubstring("replica 16 has not arrived") &&
                         ContainsSubstring("; and 83 more have not arrived"));
  for (int i = 1; i < kMany; ++i) world.start(i, members, i == 50 ? kPmean : kPsum);
  CHECK(world.found(7) == str("mismatch: replica 50 called ", kPmean,
                              " while replicas 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ",
                              "10, 11, 12, 13, 14, 15 and 83 more called ", kPsum));
}

TEST_CASE("a text is cut where it is too long, not inside a character", "[call table]") {
  Word words[4] = {};
  const auto kept = [&](std::string_view text) {
    write_text(words, text);
    return read_text(words);
  };
  CHECK(kept("psum") == "psum");
  CHECK(kept("").empty());
  const std::string fits(sizeof words - 1, 'z');
  CHECK(kept(fits) == fits);
  CHECK(kept(fits + "z") == fits.substr(3) + "...");
  std::string umlauts;
  for (int i = 0; i < 300; ++i) umlauts += "\xc3\xa4";
  CHECK(kept(umlauts) == umlauts.substr(0, 28) + "...");
}
