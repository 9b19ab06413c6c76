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
#include "framework/calls/call_table.h"
#include "framework/calls/table_memory.h"
#include "framework/comm/shared/host_memory.h"
#include "tests/calls/table_world.h"
#include "tests/catch.h"

using namespace lockstep;
using testing::call_of;

namespace {

constexpr std::uint64_t kKey = 99;
const std::array<calls::GroupMember, 2> kTwo = {calls::GroupMember{.id = 1, .worker = 0},
                                                calls::GroupMember{.id = 2, .worker = 1}};

std::vector<calls::GroupMember> on_worker_0(std::size_t size) {
  std::vector<calls::GroupMember> members(size);
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

std::shared_ptr<calls::CallTable> table_in(int memory) {
  return comm::HostMemory(2, memory).call_table();
}

// Runs the child process, which waits in another call until its parent closes `go_on`.
[[noreturn]] void wait_in_child(int memory, int ready, int go_on) {
  {
    const auto table = table_in(memory);
    const auto slot = table->take_slot(1, 2, 0, "1");
    const auto group = table->group(1, kKey, kTwo);
    slot->start(*group, 1, call_of("pmean at b.cpp:2"));
    char byte = 'r';
    if (::write(ready, &byte, 1) != 1 || ::read(go_on, &byte, 1) != 0) ::_exit(1);
    const auto report = table->examine(*slot);
    if (!report || report->text != kFound) ::_exit(2);
  }
  ::_exit(0);
}

}  // namespace

TEST_CASE("a process finds what another one waits in", "[call table]") {
  const Descriptor memory(comm::HostMemory::make_memory(2));
  int ready[2];
  int go_on[2];
  REQUIRE((::pipe(ready) == 0 && ::pipe(go_on) == 0));
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(go_on[1]);
    wait_in_child(memory.get(), ready[1], go_on[0]);
  }
  const auto table = table_in(memory.get());
  const auto slot = table->take_slot(0, 1, 0, "0");
  const auto group = table->group(0, kKey, kTwo);
  slot->start(*group, 0, call_of("psum at a.cpp:1"));
  char byte = 0;
  CHECK(::read(ready[0], &byte, 1) == 1);
  const auto report = table->examine(*slot);
  for (const int end : {ready[0], ready[1], go_on[0], go_on[1]}) ::close(end);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(report);
  CHECK(report->text == kFound);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  // The child has gone, and its slot with it: the report stays with the call.
  CHECK(table->examine(*slot) == report);
  slot->finish();
  CHECK(!table->examine(*slot));
}

TEST_CASE("a call table needs all of its memory", "[call table]") {
  const Descriptor memory(comm::HostMemory::make_memory(1));
  const auto end = static_cast<std::size_t>(::lseek(memory.get(), 0, SEEK_END));
  CHECK(calls::CallTable::bytes_for(3) > 3 * std::size_t{8} << 20);
  CHECK_THAT(
      error_of([&] { calls::CallTable(1, memory.get(), end - 4096); }),
      ContainsSubstring("CommError: the table of pending calls: descriptor ") &&
          ContainsSubstring(str(" has ", end, " bytes; a call table of 1 workers at ", end - 4096,
                                " ends at ", end - 4096 + calls::CallTable::bytes_for(1))));
  CHECK_THAT(error_of([] { calls::CallTable(1, -1, 0); }),
             ContainsSubstring("descriptor -1 can't be read"));
  CHECK(error_of([] { calls::CallTable(0); }) ==
        "ValueError: the replicas of a host run on 1 to 65536 workers, not on 0");
}

TEST_CASE("a worker's part is one CallTable's", "[call table]") {
  const Descriptor memory(comm::HostMemory::make_memory(2));
  const auto first = table_in(memory.get());
  const auto second = table_in(memory.get());
  auto slot = first->take_slot(0, 1, 0, "0");
  CHECK(error_of([&] { (void)second->take_slot(0, 2, 0, "1"); }) ==
        "CommError: worker 0 of the call table is another process' or another CallTable's");
  CHECK(error_of([&] { (void)second->group(0, kKey, kTwo); }) ==
        "CommError: worker 0 of the call table is another process' or another CallTable's");
  const auto other = second->take_slot(1, 2, 0, "1");
  const auto group = first->group(0, kKey, kTwo);
  const auto same = second->group(1, kKey, kTwo);
  slot->start(*group, 0, call_of("a"));
  other->start(*same, 1, call_of("b"));
  CHECK(first->examine(*slot) == second->examine(*other));
  CHECK(first->examine(*slot));
}

TEST_CASE("a part that was left is taken over clean", "[call table]") {
  const Descriptor memory(comm::HostMemory::make_memory(2));
  const auto stays = table_in(memory.get());
  const auto waiting = stays->take_slot(1, 2, 0, "1");
  const auto group = stays->group(1, kKey, kTwo);
  {
    const auto leaves = table_in(memory.get());
    const auto slot = leaves->take_slot(0, 1, 0, "0");
    const auto theirs = leaves->group(0, kKey, kTwo);
    slot->start(*theirs, 0, call_of("a"));
    waiting->start(*group, 1, call_of("a"));
    slot->finish();
    slot->returned();
  }
  // The call table still knows that the member had arrived.
  CHECK(stays->absentees(*waiting).empty());
  const auto next = table_in(memory.get());
  const auto slot = next->take_slot(0, 1, 0, "0");
  CHECK_THAT(stays->absentees(*waiting), ContainsSubstring("it has finished no collective"));
}

// A thread that is taken off its core while it writes its slot leaves it so.
TEST_CASE("a report is not settled while a member's slot is being written", "[call table]") {
  const Descriptor memory(::memfd_create("call table", MFD_CLOEXEC));
  REQUIRE(::ftruncate(memory.get(), static_cast<off_t>(calls::CallTable::bytes_for(1))) == 0);
  calls::CallTable table(1, memory.get(), 0);
  const std::array<calls::GroupMember, 3> members = {
      calls::GroupMember{.id = 1}, calls::GroupMember{.id = 2}, calls::GroupMember{.id = 3}};
  std::vector<std::unique_ptr<calls::CallTable::Slot>> slots;
  for (const calls::GroupMember& member : members) {
    slots.push_back(table.take_slot(0, member.id, 0, str(member.id - 1)));
  }
  const auto group = table.group(0, kKey, members);
  slots[0]->start(*group, 0, call_of("psum"));
  slots[1]->start(*group, 1, call_of("psum"));
  slots[2]->returned();

  const calls::TableMemory seen(1, memory.get(), 0);
  const calls::WorkerWords& words = seen.worker(0);
  const auto index =
      static_cast<std::size_t>(std::ranges::find(words.ids, 2U, &Word::load) - words.ids);
  Word& version = seen.worker(0).slots[index].version;
  version.store(version.load() + 1);
  CHECK(!table.examine(*slots[0], /*settled_only=*/true));
  version.store(version.load() + 1);
  const auto report = table.examine(*slots[0], /*settled_only=*/true);
  REQUIRE(report);
  CHECK(report->text == "replica 2 has returned while replicas 0 and 1 called psum");
}

TEST_CASE("who has arrived is known for as long as another worker waits", "[call table]") {
  calls::CallTable table(2);
  const auto first = table.take_slot(0, 1, 0, "0");
  const auto second = table.take_slot(1, 2, 0, "1");
  const auto members = std::span(kTwo);
  const auto held = table.group(1, kKey, members);
  {
    const auto group = table.group(0, kKey, members);
    CHECK(table.group(0, kKey, members) == group);
    first->start(*group, 0, call_of("a"));
    second->start(*held, 1, call_of("a"));
    first->finish();
    first->returned();
  }
  for (std::uint64_t key = 1000; key < 1500; ++key) (void)table.group(0, key, members);
  CHECK(!table.examine(*second));
  // A member that comes back to the group counts on.
  const auto again = table.group(0, kKey, members);
  second->finish();
  first->start(*again, 0, call_of("b"));
  second->start(*held, 1, call_of("b"));
  CHECK(!table.examine(*first));
  CHECK(!table.examine(*second));
}

TEST_CASE("what is asked for wrongly names the numbers", "[call table]") {
  calls::CallTable table(2);
  const auto slot = table.take_slot(0, 1, 0, "0");
  const auto group = table.group(0, kKey, kTwo);
  CHECK(error_of([&] { (void)table.take_slot(2, 1, 0, "0"); }) ==
        "ValueError: a call table of 2 workers has no worker 2");
  CHECK_THAT(error_of([&] { (void)table.take_slot(0, 0, 0, "7"); }),
             ContainsSubstring("ValueError: replica 7 has the id 0"));
  CHECK(error_of([&] { (void)table.group(0, 0, kTwo); }) ==
        "ValueError: a group's key in the call table is not 0");
  const std::array<calls::GroupMember, 1> astray = {calls::GroupMember{.id = 1, .worker = 2}};
  CHECK(error_of([&] { (void)table.group(0, 5, astray); }) ==
        "ValueError: a member's worker is 2 in a call table of 2 workers");
  CHECK(error_of([&] { (void)table.group(0, kKey, astray); }).starts_with("ValueError"));
  CHECK(error_of([&] { (void)table.group(0, kKey, on_worker_0(3)); }) ==
        "CommError: two groups of worker 0 have the key 99: one of 2 members and one of 3");
  CHECK(error_of([&] { slot->start(*group, 2, call_of("a")); }) ==
        "ValueError: place 2 in a group of 2 of worker 0 is not of a member of worker 0");
}

TEST_CASE("slots are used again, and are so many", "[call table]") {
  calls::CallTable table(1);
  const auto members = on_worker_0(2);
  const auto group = table.group(0, kKey, members);
  std::vector<std::unique_ptr<calls::CallTable::Slot>> slots;
  for (int i = 0; i < calls::CallTable::kSlots; ++i) {
    slots.push_back(table.take_slot(0, static_cast<std::uint64_t>(i) + 1, 0, str(i)));
  }
  const auto one_more = [&] { slots.push_back(table.take_slot(0, 50000, 0, "(1, 7)")); };
  CHECK(error_of(one_more) ==
        "CommError: replica (1, 7) can't start: a process runs at most 32768 replicas and lanes at "
        "once, those of maps in maps and who runs them among them");
  slots[1]->start(*group, 1, call_of("a"));
  slots[1]->finish();
  slots[1].reset();
  slots[1] = table.take_slot(0, 2, 0, "another");
  slots[0]->start(*group, 0, call_of("a"));
  CHECK(!table.examine(*slots[0]));
  slots[0]->finish();
  slots[0]->start(*group, 0, call_of("b"));
  CHECK(table.absentees(*slots[0]) ==
        "replica another has not arrived: it is running, and it has finished no collective");
}

TEST_CASE("the memory of groups is used again, and is finite", "[call table]") {
  calls::CallTable table(2);
  std::vector<std::shared_ptr<calls::CallTable::Group>> held;
  std::uint64_t key = 0;
  const auto add = [&](std::size_t size) {
    held.push_back(table.group(0, ++key, on_worker_0(size)));
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
    for (int i = 0; i < calls::CallTable::kGroups; ++i) add(1);
    CHECK_THAT(error_of([&] { add(1); }), ContainsSubstring("hold 32768 of at most 32768 groups"));
    held.pop_back();
    add(1);
  }
  SECTION("groups that come and go, on workers that let go of them at different times") {
    std::vector<std::shared_ptr<calls::CallTable::Group>> elsewhere;
    auto members = on_worker_0(1000);
    for (std::size_t i = 500; i < 1000; ++i) members[i].worker = 1;
    for (int i = 0; i < 500; ++i) {
      held.push_back(table.group(0, ++key, members));
      elsewhere.push_back(table.group(1, key, members));
      if (i >= 20) held[held.size() - 20].reset();
      if (i >= 30) elsewhere[elsewhere.size() - 30].reset();
    }
    CHECK(held.size() == 500);
  }
}
