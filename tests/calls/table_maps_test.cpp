// These tests are of members that run maps, and of members in maps.

#include <string>

#include "framework/base/text.h"
#include "framework/calls/call_table.h"
#include "tests/calls/table_world.h"
#include "tests/catch.h"

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("a map is waited for through its children", "[call table]") {
  TableWorld world(2, any_workers());
  const int first = world.add_child(1);
  const int second = world.add_child(1);
  world.slot(1).enter_map(call_of(kPmap), 2);
  world.start(0, {0, 1}, kPsum);
  CHECK(world.found(0).empty());
  // The children may still come together.
  world.start(first, {first, second}, kPmean);
  CHECK(world.found(0).empty());
  // They can't once one has returned, but the map's caller may catch its error, and come.
  world.slot(second).returned();
  CHECK(world.found(0).empty());
  CHECK(world.found(first) ==
        str("mismatch: replica (1, 3) has returned while replica (1, 2) called ", kPmean));
  world.slot(1).leave_map();
  CHECK(world.found(0).empty());
  world.slot(1).fell_out("theirs");
  CHECK(world.found(0) == "mismatch: theirs");
}

TEST_CASE("a map whose children wait for who waits for the map never ends", "[call table]") {
  TableWorld world(2, any_workers());
  const int child = world.add_child(1);
  world.slot(1).enter_map(call_of(kPmap), 1);
  world.start(child, {child, 0}, kPmean);
  CHECK(world.found(child).empty());
  world.start(0, {0, 1}, kPsum);
  const std::string text = str("mismatch: replica 1 is in ", kPmap, " and replica (1, 2) called ",
                               kPmean, " while replica 0 called ", kPsum);
  CHECK(world.found(0) == text);
  CHECK(world.found(child) == text);
}

TEST_CASE("who has left its map is asked itself again", "[call table]") {
  TableWorld world(2, any_workers());
  const int child = world.add_child(1);
  world.slot(1).enter_map(call_of(kPmap), 1);
  world.slot(child).returned();
  world.start(0, {0, 1}, kPsum);
  CHECK(world.found(0).empty());
  world.free_slot(child);
  world.slot(1).leave_map();
  CHECK(world.found(0).empty());
  world.slot(1).returned();
  CHECK(world.found(0) == str("mismatch: replica 1 has returned while replica 0 called ", kPsum));
}

TEST_CASE("for a member without a slot its parent is asked", "[call table]") {
  TableWorld world(2, any_workers());
  const int child = world.add_child(0);
  const int peer = world.add_child(1, false);
  world.slot(0).enter_map(call_of(kPmap), 1);
  world.start(child, {child, peer}, kPsum);
  CHECK(world.found(child).empty());
  SECTION("it may still start it") {
    world.slot(1).enter_map(call_of(kPmap), 1);
    CHECK(world.found(child).empty());
    world.sit(peer, "(1, 0)");
    CHECK(world.found(child).empty());
    world.start(peer, {child, peer}, kPmean);
    CHECK(world.found(child) ==
          str("mismatch: replica (0, 2) called ", kPsum, " while replica (1, 0) called ", kPmean));
  }
  SECTION("it has returned") {
    world.slot(1).returned();
    CHECK(world.found(child) ==
          str("mismatch: replica 1 has returned while replica (0, 2) called ", kPsum));
  }
  SECTION("it has thrown") {
    world.slot(1).threw("no");
    CHECK(world.found(child) ==
          str("failed: replica (0, 2) called ", kPsum, " while replica 1 has thrown: no"));
  }
  SECTION("it waits for who runs the map") {
    world.start(1, {0, 1}, kPmean);
    CHECK(world.found(child) == str("mismatch: replica 0 is in ", kPmap,
                                    " and replica (0, 2) called ", kPsum,
                                    " while replica 1 called ", kPmean));
  }
  SECTION("it is in another map, whose members wait for those of the first") {
    world.slot(1).enter_map(call_of("pmap over 'batch' at y.cpp:9"), 1);
    CHECK(world.found(child).empty());
    const int other = world.add_child(1);
    const int its_peer = world.add_child(0, false);
    world.start(other, {its_peer, other}, kPmean);
    CHECK(world.found(child) ==
          str("mismatch: replica 0 is in ", kPmap,
              ", replica 1 is in pmap over 'batch' at y.cpp:9 and replica (0, 2) called ", kPsum,
              " while replica (1, 4) called ", kPmean));
  }
}

TEST_CASE("for one in a map in a map that has not begun its ancestors are asked", "[call table]") {
  TableWorld world(2, any_workers());
  const int middle = world.add_child(0);
  const int inner = world.add_child(middle);
  const int peer_middle = world.add_child(1, false);
  const int peer_inner = world.add_child(peer_middle, false);
  world.slot(0).enter_map(call_of(kPmap), 1);
  world.slot(middle).enter_map(call_of(kPmap), 1);
  world.start(inner, {inner, peer_inner}, kPsum);
  CHECK(world.found(inner).empty());
  world.slot(1).returned();
  CHECK(world.found(inner) ==
        str("mismatch: replica 1 has returned while replica (2, 3) called ", kPsum));
}
