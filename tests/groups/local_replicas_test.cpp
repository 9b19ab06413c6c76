#include "framework/groups/local_replicas.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "tests/calls/table_world.h"
#include "tests/catch.h"

using namespace lockstep;
using testing::call_of;

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Returns the clock of a wait in a process that has run all the time.
Waited has_waited(milliseconds time) {
  const auto end = Clock::now();
  Waited waited(end - time);
  for (auto now = end - time; now < end; now += milliseconds(50)) {
    waited.look(Waited::never(), now);
  }
  return waited;
}

// The replicas of one process. Some wait in calls on a group of all of them.
class Waiting {
 public:
  explicit Waiting(int replicas) {
    for (int i = 0; i < replicas; ++i) group_.push_back({.id = static_cast<std::uint64_t>(i) + 1});
    for (const calls::GroupMember& member : group_) {
      members_.emplace_back(table_->take_slot(0, member.id, 0, str(member.id - 1)),
                            std::make_shared<comm::Cancellation>(), milliseconds(60'000));
    }
  }

  groups::LocalReplicas& local_replicas() { return local_; }
  groups::Member& member(int i) { return members_[static_cast<std::size_t>(i)]; }
  void start(int i, std::string_view call) {
    held_ = table_->group(0, 7, group_);
    member(i).slot->start(*held_, i, call_of(call));
  }
  // Returns the error with which replica i ends after such a wait; "" if it waits on.
  std::string end_of_wait(int i, milliseconds waited) {
    Waited by_now = has_waited(waited);
    const auto error = local_.end_of_wait(member(i), by_now);
    if (!error) return "";
    try {
      std::rethrow_exception(error);
    } catch (const Error& caught) {
      return str(caught.type(), ": ", caught.what());
    }
  }

 private:
  std::shared_ptr<calls::CallTable> table_ = std::make_shared<calls::CallTable>(1);
  groups::LocalReplicas local_{0, nullptr, table_};
  std::vector<calls::GroupMember> group_;
  std::deque<groups::Member> members_;
  std::shared_ptr<calls::CallTable::Group> held_;
};

}  // namespace

TEST_CASE("who is waited for too long is named in a Timeout", "[groups]") {
  Waiting replicas(2);
  replicas.start(0, "psum");
  CHECK(replicas.end_of_wait(0, seconds(59)).empty());
  CHECK(replicas.end_of_wait(0, seconds(60)) ==
        "Timeout: waited 60000 ms: replica 1 has not arrived: it is running, and it has finished "
        "no collective");
}

TEST_CASE("a Timeout says when everyone has arrived", "[groups]") {
  Waiting replicas(2);
  replicas.start(0, "psum");
  replicas.start(1, "psum");
  CHECK(replicas.end_of_wait(0, seconds(60)) ==
        "Timeout: waited 60000 ms: all replicas have arrived, but not their data");
}

TEST_CASE("a member with a run lock is waited for as long as the lock is released", "[groups]") {
  Waiting replicas(2);
  replicas.start(0, "psum");
  comm::RunLock run_lock;
  replicas.member(0).run_lock = &run_lock;
  CHECK(!replicas.end_of_wait(0, seconds(60)).empty());
  run_lock.take();
  run_lock.give();
  CHECK(replicas.end_of_wait(0, seconds(60)).empty());
}

TEST_CASE("a mismatch waits a while for those who are on their way", "[groups]") {
  Waiting replicas(3);
  replicas.start(0, "psum");
  replicas.start(2, "pmean");
  CHECK(replicas.end_of_wait(0, milliseconds(100)).empty());
  SECTION("and names them") {
    replicas.start(1, "psum");
    CHECK(replicas.end_of_wait(2, milliseconds(100)) ==
          "CollectiveMismatch: replica 2 called pmean while replicas 0 and 1 called psum");
  }
  SECTION("not for long") {
    CHECK(replicas.end_of_wait(2, milliseconds(400)) ==
          "CollectiveMismatch: replica 0 called psum while replica 2 called pmean");
  }
}

TEST_CASE("who is at its end does not take back what it has called", "[groups]") {
  Waiting replicas(2);
  replicas.start(0, "psum");
  replicas.start(1, "pmean");
  const std::string mismatch = replicas.end_of_wait(0, milliseconds(0));
  CHECK(mismatch == "CollectiveMismatch: replica 0 called psum while replica 1 called pmean");
  CHECK(replicas.end_of_wait(1, milliseconds(0)) == mismatch);
  CHECK(replicas.member(0).cancellation->is_cancelled());
  // The replica gets the same error at any later time.
  CHECK(replicas.end_of_wait(0, seconds(100)) == mismatch);
}

TEST_CASE("a process that was paused has not waited", "[groups]") {
  Waiting replicas(2);
  replicas.start(0, "psum");
  // The wait is looked after for a second, and then not for a day.
  const auto begin = Clock::now() - std::chrono::hours(24);
  Waited waited(begin);
  for (auto after = milliseconds(0); after < seconds(1); after += milliseconds(50)) {
    waited.look(Waited::never(), begin + after);
  }
  CHECK(replicas.local_replicas().end_of_wait(replicas.member(0), waited) == nullptr);
  CHECK(waited.look() < seconds(2));
}

TEST_CASE("a call table tells from outside who waits, and whether it looks", "[groups]") {
  Waiting replicas(2);
  const calls::CallTable& table = replicas.local_replicas().call_table();
  CHECK(table.waits(0).empty());
  std::uint64_t before = table.activity(0);
  replicas.start(0, "psum");
  CHECK(table.activity(0) != before);
  REQUIRE(table.waits(0).size() == 1);
  const calls::CallTable::Wait wait = table.waits(0)[0];
  CHECK(table.text_of(wait) == "replica 0 waits in psum");
  CHECK(table.absentees(wait) ==
        "replica 1 has not arrived: it is running, and it has finished no collective");
  before = table.activity(0);
  CHECK(table.activity(0) == before);
  CHECK(replicas.end_of_wait(0, seconds(1)).empty());
  CHECK(table.activity(0) != before);
  replicas.start(1, "psum");
  CHECK(table.absentees(wait).empty());
}
