#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/descriptor.h"
#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/comm/shared/host_memory.h"
#include "framework/watch/board.h"
#include "framework/watch/board_memory.h"
#include "tests/catch.h"
#include "tests/watch/board_world.h"

using namespace lockstep;
using testing::call_of;

namespace {

constexpr std::uint64_t kKey = 99;
const std::array<watch::GroupMember, 2> kTwo = {watch::GroupMember{.id = 1, .worker = 0},
                                                watch::GroupMember{.id = 2, .worker = 1}};

std::vector<watch::GroupMember> on_worker_0(std::size_t size) {
  std::vector<watch::GroupMember> members(size);
  for (std::size_t i = 0; i < size; ++i) members[i].id = i + 1;
  return members;
}

template <typename Function>
std::string error_of(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return str(error.type(), ": ", error.what());
  }
  return "";
}

constexpr const char* kFound =
    "replica 0 called psum at a.cpp:1 while replica 1 called pmean at b.cpp:2";

std::shared_ptr<watch::Board> board_in(int memory) {
  return comm::HostMemory(2, memory).board();
}

// What the child process does, until its parent closes `go_on`: waits in another call.
[[noreturn]] void wait_in_child(int memory, int ready, int go_on) {
  {
    const auto board = board_in(memory);
    const auto seat = board->take_seat(1, 2, 0, "1");
    const auto group = board->group(1, kKey, kTwo);
    seat->start(*group, 1, call_of("pmean at b.cpp:2"));
    char byte = 'r';
    if (::write(ready, &byte, 1) != 1 || ::read(go_on, &byte, 1) != 0) ::_exit(1);
    const auto verdict = board->examine(*seat);
    if (!verdict || verdict->text != kFound) ::_exit(2);
  }
  ::_exit(0);
}

}  // namespace

TEST_CASE("a process finds what another one waits in", "[board]") {
  const Descriptor memory(comm::HostMemory::make_memory(2));
  int ready[2];
  int go_on[2];
  REQUIRE((::pipe(ready) == 0 && ::pipe(go_on) == 0));
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(go_on[1]);
    wait_in_child(memory.get(), ready[1], go_on[0]);
  }
  const auto board = board_in(memory.get());
  const auto seat = board->take_seat(0, 1, 0, "0");
  const auto group = board->group(0, kKey, kTwo);
  seat->start(*group, 0, call_of("psum at a.cpp:1"));
  char byte = 0;
  CHECK(::read(ready[0], &byte, 1) == 1);
  const auto verdict = board->examine(*seat);
  for (const int end : {ready[0], ready[1], go_on[0], go_on[1]}) ::close(end);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(verdict);
  CHECK(verdict->text == kFound);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  // The child has gone, and its seat with it: the verdict stays with the call.
  CHECK(board->examine(*seat) == verdict);
  seat->finish();
  CHECK(!board->examine(*seat));
}

TEST_CASE("a board needs all of its memory", "[board]") {
  const Descriptor memory(comm::HostMemory::make_memory(1));
  const auto end = static_cast<std::size_t>(::lseek(memory.get(), 0, SEEK_END));
  CHECK(watch::Board::bytes_for(3) > 3 * std::size_t{8} << 20);
  CHECK_THAT(error_of([&] { watch::Board(1, memory.get(), end - 4096); }),
             ContainsSubstring("CommError: the board of pending calls: descriptor ") &&
                 ContainsSubstring(str(" has ", end, " bytes; a board of 1 workers at ", end - 4096,
                                       " ends at ", end - 4096 + watch::Board::bytes_for(1))));
  CHECK_THAT(error_of([] { watch::Board(1, -1, 0); }),
             ContainsSubstring("descriptor -1 can't be read"));
  CHECK(error_of([] { watch::Board(0); }) ==
        "ValueError: the replicas of a host run on 1 to 65536 workers, not on 0");
}

TEST_CASE("a worker's part is one Board's", "[board]") {
  const Descriptor memory(comm::HostMemory::make_memory(2));
  const auto first = board_in(memory.get());
  const auto second = board_in(memory.get());
  auto seat = first->take_seat(0, 1, 0, "0");
  CHECK(error_of([&] { (void)second->take_seat(0, 2, 0, "1"); }) ==
        "CommError: worker 0 of the board is another process' or another Board's");
  CHECK(error_of([&] { (void)second->group(0, kKey, kTwo); }) ==
        "CommError: worker 0 of the board is another process' or another Board's");
  const auto other = second->take_seat(1, 2, 0, "1");
  const auto group = first->group(0, kKey, kTwo);
  const auto same = second->group(1, kKey, kTwo);
  seat->start(*group, 0, call_of("a"));
  other->start(*same, 1, call_of("b"));
  CHECK(first->examine(*seat) == second->examine(*other));
  CHECK(first->examine(*seat));
}

TEST_CASE("a part that was left is taken over clean", "[board]") {
  const Descriptor memory(comm::HostMemory::make_memory(2));
  const auto stays = board_in(memory.get());
  const auto waiting = stays->take_seat(1, 2, 0, "1");
  const auto group = stays->group(1, kKey, kTwo);
  {
    const auto leaves = board_in(memory.get());
    const auto seat = leaves->take_seat(0, 1, 0, "0");
    const auto theirs = leaves->group(0, kKey, kTwo);
    seat->start(*theirs, 0, call_of("a"));
    waiting->start(*group, 1, call_of("a"));
    seat->finish();
    seat->returned();
  }
  // It is still known that it had arrived.
  CHECK(stays->absentees(*waiting).empty());
  const auto next = board_in(memory.get());
  const auto seat = next->take_seat(0, 1, 0, "0");
  CHECK_THAT(stays->absentees(*waiting), ContainsSubstring("it has finished no collective"));
}

// As when its thread is taken off the core in the middle of saying what it does.
TEST_CASE("a verdict is not settled while a member's seat is being written", "[board]") {
  const Descriptor memory(::memfd_create("board", MFD_CLOEXEC));
  REQUIRE(::ftruncate(memory.get(), static_cast<off_t>(watch::Board::bytes_for(1))) == 0);
  watch::Board board(1, memory.get(), 0);
  const std::array<watch::GroupMember, 3> members = {
      watch::GroupMember{.id = 1}, watch::GroupMember{.id = 2}, watch::GroupMember{.id = 3}};
  std::vector<std::unique_ptr<watch::Board::Seat>> seats;
  for (const watch::GroupMember& member : members) {
    seats.push_back(board.take_seat(0, member.id, 0, str(member.id - 1)));
  }
  const auto group = board.group(0, kKey, members);
  seats[0]->start(*group, 0, call_of("psum"));
  seats[1]->start(*group, 1, call_of("psum"));
  seats[2]->returned();

  const watch::BoardMemory seen(1, memory.get(), 0);
  const watch::WorkerWords& words = seen.worker(0);
  const auto index =
      static_cast<std::size_t>(std::ranges::find(words.ids, 2U, &Word::load) - words.ids);
  Word& version = seen.worker(0).seats[index].version;
  version.store(version.load() + 1);
  CHECK(!board.examine(*seats[0], /*settled_only=*/true));
  version.store(version.load() + 1);
  const auto verdict = board.examine(*seats[0], /*settled_only=*/true);
  REQUIRE(verdict);
  CHECK(verdict->text == "replica 2 has returned while replicas 0 and 1 called psum");
}

TEST_CASE("who has arrived is known for as long as another worker waits", "[board]") {
  watch::Board board(2);
  const auto first = board.take_seat(0, 1, 0, "0");
  const auto second = board.take_seat(1, 2, 0, "1");
  const auto members = std::span(kTwo);
  const auto held = board.group(1, kKey, members);
  {
    const auto group = board.group(0, kKey, members);
    CHECK(board.group(0, kKey, members) == group);
    first->start(*group, 0, call_of("a"));
    second->start(*held, 1, call_of("a"));
    first->finish();
    first->returned();
  }
  for (std::uint64_t key = 1000; key < 1500; ++key) (void)board.group(0, key, members);
  CHECK(!board.examine(*second));
  // Whoever comes back to the group counts on.
  const auto again = board.group(0, kKey, members);
  second->finish();
  first->start(*again, 0, call_of("b"));
  second->start(*held, 1, call_of("b"));
  CHECK(!board.examine(*first));
  CHECK(!board.examine(*second));
}

TEST_CASE("what is asked for wrongly names the numbers", "[board]") {
  watch::Board board(2);
  const auto seat = board.take_seat(0, 1, 0, "0");
  const auto group = board.group(0, kKey, kTwo);
  CHECK(error_of([&] { (void)board.take_seat(2, 1, 0, "0"); }) ==
        "ValueError: a board of 2 workers has no worker 2");
  CHECK_THAT(error_of([&] { (void)board.take_seat(0, 0, 0, "7"); }),
             ContainsSubstring("ValueError: replica 7 has the id 0"));
  CHECK(error_of([&] { (void)board.group(0, 0, kTwo); }) ==
        "ValueError: a group's key on the board is not 0");
  const std::array<watch::GroupMember, 1> astray = {watch::GroupMember{.id = 1, .worker = 2}};
  CHECK(error_of([&] { (void)board.group(0, 5, astray); }) ==
        "ValueError: a member's worker is 2 on a board of 2 workers");
  CHECK(error_of([&] { (void)board.group(0, kKey, astray); }).starts_with("ValueError"));
  CHECK(error_of([&] { (void)board.group(0, kKey, on_worker_0(3)); }) ==
        "CommError: two groups of worker 0 have the key 99: one of 2 members and one of 3");
  CHECK(error_of([&] { seat->start(*group, 2, call_of("a")); }) ==
        "ValueError: place 2 in a group of 2 of worker 0 is not of a member of worker 0");
}

TEST_CASE("seats are used again, and are so many", "[board]") {
  watch::Board board(1);
  const auto members = on_worker_0(2);
  const auto group = board.group(0, kKey, members);
  std::vector<std::unique_ptr<watch::Board::Seat>> seats;
  for (int i = 0; i < watch::Board::kSeats; ++i) {
    seats.push_back(board.take_seat(0, static_cast<std::uint64_t>(i) + 1, 0, str(i)));
  }
  const auto one_more = [&] { seats.push_back(board.take_seat(0, 50000, 0, "(1, 7)")); };
  CHECK(error_of(one_more) ==
        "CommError: replica (1, 7) can't start: a process runs at most 32768 replicas and lanes at "
        "once, those of maps in maps and who runs them among them");
  seats[1]->start(*group, 1, call_of("a"));
  seats[1]->finish();
  seats[1].reset();
  seats[1] = board.take_seat(0, 2, 0, "another");
  seats[0]->start(*group, 0, call_of("a"));
  CHECK(!board.examine(*seats[0]));
  seats[0]->finish();
  seats[0]->start(*group, 0, call_of("b"));
  CHECK(board.absentees(*seats[0]) ==
        "replica another has not arrived: it is running, and it has finished no collective");
}

TEST_CASE("the memory of groups is used again, and is finite", "[board]") {
  watch::Board board(2);
  std::vector<std::shared_ptr<watch::Board::Group>> held;
  std::uint64_t key = 0;
  const auto add = [&](std::size_t size) {
    held.push_back(board.group(0, ++key, on_worker_0(size)));
  };
  SECTION("large ones") {
    for (int i = 0; i < 87; ++i) add(1000);
    CHECK(error_of([&] { add(1000); }) ==
          "CommError: no room for another group of replicas: one of 1000 takes 48008 bytes; those "
          "of this process hold 87 of at most 32768 groups, and of 4194304 bytes for these 17608 "
          "are free, 17608 in one piece");
    held[20].reset();
    held[22].reset();
    CHECK_THAT(error_of([&] { add(2000); }),
               ContainsSubstring("113624 are free, 48008 in one piece"));
    held[21].reset();
    add(2000);
    add(1000);
  }
  SECTION("many") {
    for (int i = 0; i < watch::Board::kGroups; ++i) add(1);
    CHECK_THAT(error_of([&] { add(1); }), ContainsSubstring("hold 32768 of at most 32768 groups"));
    held.pop_back();
    add(1);
  }
  SECTION("groups that come and go, on workers that let go of them at different times") {
    std::vector<std::shared_ptr<watch::Board::Group>> elsewhere;
    auto members = on_worker_0(1000);
    for (std::size_t i = 500; i < 1000; ++i) members[i].worker = 1;
    for (int i = 0; i < 500; ++i) {
      held.push_back(board.group(0, ++key, members));
      elsewhere.push_back(board.group(1, key, members));
      if (i >= 20) held[held.size() - 20].reset();
      if (i >= 30) elsewhere[elsewhere.size() - 30].reset();
    }
    CHECK(held.size() == 500);
  }
}
