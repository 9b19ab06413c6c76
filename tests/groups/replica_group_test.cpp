#include "framework/groups/replica_group.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <iostream>
#include <latch>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/reduce/reduce.h"
#include "tests/catch.h"
#include "tests/comm/broken_network.h"
#include "tests/comm/replicas.h"
#include "tests/comm/symmetric_checks.h"
#include "tests/comm/words.h"
#include "tests/reduce/reductions.h"
#include "tests/support/settings.h"

using namespace lockstep;
using testing::Backend;
using testing::bytes;
using testing::everyone;
using testing::expect;
using testing::kFloat;
using testing::kSum;
using testing::sum_of;
using testing::values_of;
using testing::Words;

namespace {

using Verbs = void (*)(comm::Communicator& group, std::size_t count);

void all_reduce(comm::Communicator& group, std::size_t count) {
  Words words = values_of(group.rank(), count);
  const Words expected = sum_of(everyone(group.size()), count);
  Words apart(count);
  group.all_reduce(bytes(std::as_const(words)), bytes(apart), kFloat, kSum);
  expect(apart == expected, "all_reduce");
  group.all_reduce(bytes(std::as_const(words)), bytes(words), kFloat, kSum);
  expect(words == expected, "all_reduce in place");
}

void reduce_scatter_and_gather(comm::Communicator& group, std::size_t count) {
  const auto n = static_cast<std::size_t>(group.size());
  const auto me = static_cast<std::ptrdiff_t>(group.rank());
  const Words words = values_of(group.rank(), count * n);
  Words own(count);
  group.reduce_scatter(bytes(words), bytes(own), kFloat, kSum);
  const Words expected = sum_of(everyone(group.size()), count * n);
  const auto slice = expected.begin() + me * static_cast<std::ptrdiff_t>(count);
  expect(own == Words(slice, slice + static_cast<std::ptrdiff_t>(count)), "reduce_scatter");
  Words all(count * n);
  group.all_gather(bytes(std::as_const(own)), bytes(all));
  expect(all == expected, "all_gather");
}

// Lets place s send place d (s + 2 d) % 5 words of 100 s + d.
void all_to_all(comm::Communicator& group, std::size_t) {
  const auto length = [](int source, int destination) {
    return static_cast<std::size_t>((source + 2 * destination) % 5);
  };
  const auto value = [](int source, int destination) {
    return static_cast<float>(100 * source + destination);
  };
  Words input;
  Words expected;
  std::vector<std::size_t> send_sizes;
  std::vector<std::size_t> recv_sizes;
  for (int other = 0; other < group.size(); ++other) {
    input.insert(input.end(), length(group.rank(), other), value(group.rank(), other));
    expected.insert(expected.end(), length(other, group.rank()), value(other, group.rank()));
    send_sizes.push_back(length(group.rank(), other) * sizeof(float));
    recv_sizes.push_back(length(other, group.rank()) * sizeof(float));
  }
  Words output(expected.size());
  group.all_to_all(bytes(std::as_const(input)), send_sizes, bytes(output), recv_sizes);
  expect(output == expected, "all_to_all");
}

// Lets place p send to 3 p + 1 modulo the largest number of places that 3 does not divide. A place
// that is nobody's destination receives nothing.
void permute_and_broadcast(comm::Communicator& group, std::size_t count) {
  const int m = group.size() % 3 == 0 ? group.size() - 1 : group.size();
  const auto to = [&](int place) { return place < m ? (3 * place + 1) % m : -1; };
  int source = comm::Communicator::kNobody;
  for (int place = 0; place < m; ++place) {
    if (to(place) == group.rank()) source = place;
  }
  const Words input = values_of(group.rank(), count);
  Words output(count, -1);
  group.permute(bytes(input), to(group.rank()), bytes(output), source);
  expect(output == (source < 0 ? Words(count, -1) : values_of(source, count)), "permute");
  for (int root = 0; root < group.size(); ++root) {
    Words data = values_of(group.rank(), count);
    group.broadcast(bytes(data), root);
    expect(data == values_of(root, count), "broadcast");
  }
  group.barrier();
}

constexpr Verbs kAllVerbs[] = {all_reduce, reduce_scatter_and_gather, all_to_all,
                               permute_and_broadcast};

// Runs `body` in a thread for each of the group's places, in workers that the backend joins.
void on_workers(const std::vector<int>& worker_of,
                const std::function<void(groups::ReplicaGroup&)>& body,
                Backend backend = Backend::gloo,
                std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  const int workers = *std::max_element(worker_of.begin(), worker_of.end()) + 1;
  std::vector<calls::GroupMember> members;
  for (std::size_t place = 0; place < worker_of.size(); ++place) {
    members.push_back({.id = place + 1, .worker = worker_of[place]});
  }
  const auto table = std::make_shared<calls::CallTable>(workers);
  lockstep::testing::in_threads(backend, workers, [&](comm::Communicator& world) {
    const std::shared_ptr<comm::Communicator> outer(&world, [](comm::Communicator*) {});
    groups::LocalReplicas local(world.rank(), workers > 1 ? outer : nullptr, table);
    std::mutex mutex;
    std::exception_ptr first;
    const auto cancellation = std::make_shared<comm::Cancellation>();
    // The ends of members stay in the call table until all have ended.
    std::deque<groups::Member> here;
    std::vector<std::thread> threads;
    for (std::size_t place = 0; place < worker_of.size(); ++place) {
      if (worker_of[place] != world.rank()) continue;
      here.emplace_back(table->take_slot(world.rank(), members[place].id, 0, str(place)),
                        cancellation, timeout);
      threads.emplace_back([&, place, &member = here.back()] {
        try {
          groups::ReplicaGroup group(local.group(7, [&] { return members; }), member,
                                     static_cast<int>(place));
          group.begin(calls::CallRecord{1, "the test"});
          body(group);
          group.end();
        } catch (const std::exception& error) {
          const auto* ours = dynamic_cast<const Error*>(&error);
          member.slot->threw(str(ours != nullptr ? ours->type() : "", ": ", error.what()));
          cancellation->cancel(error.what());
          local.wake_all();
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    world.barrier();
    if (first) std::rethrow_exception(first);
  });
}

}  // namespace

TEST_CASE("verbs of groups that join threads of several processes have the usual bits") {
  // The layouts: one process; one place each in another order; blocks; interleaved and unequal.
  const std::vector<std::vector<int>> layouts{
      {0}, {0, 0, 0}, {1, 0}, {0, 0, 1, 1}, {0, 1, 0, 2, 2, 0, 1, 0}};
  testing::Sample sample("verbs of groups");
  for (const auto& worker_of : layouts) {
    INFO("workers of places: " << join(worker_of));
    for (const Verbs verbs : kAllVerbs) {
      for (const std::size_t count : {0U, 1U, 37U, 20000U}) {
        for (const Backend backend : {Backend::gloo, Backend::shared, Backend::hosts}) {
          if (!sample.next()) continue;
          CHECK_NOTHROW(on_workers(
              worker_of, [&](groups::ReplicaGroup& group) { verbs(group, count); }, backend));
        }
      }
    }
  }
}

TEST_CASE("symmetric buffers of such groups are memory like any other", "[slow]") {
  testing::Sample sample("symmetric buffers of groups");
  for (const auto& worker_of :
       {std::vector<int>{0}, {0, 0, 0}, {0, 0, 0, 0, 0}, {1, 0}, {0, 1, 0, 2}}) {
    INFO("workers of places: " << join(worker_of));
    // The work of the largest count is shared among the threads of a process.
    for (const std::size_t count : {0U, 17U, 4099U, 300007U}) {
      for (const Backend backend : {Backend::gloo, Backend::shared, Backend::hosts}) {
        if (!sample.next()) continue;
        CHECK_NOTHROW(on_workers(
            worker_of, [&](groups::ReplicaGroup& group) { testing::check_symmetric(group, count); },
            backend));
      }
    }
  }
}

TEST_CASE("such groups have one copy of a buffer where their processes share memory") {
  const auto is_one = [](bool expected) {
    return [=](groups::ReplicaGroup& group) {
      const auto buffer = group.allocate(10, comm::Copies::one);
      expect(buffer.is_common() == expected, "one copy for all");
      expect(!group.allocate(10, comm::Copies::each).is_common(), "one for each");
      if (!expected) return;
      const auto own = buffer.own;
      expect(own.size() == 10 && own[0] == std::byte{0}, "zeros");
      group.barrier();
      own[static_cast<std::size_t>(group.rank())] = static_cast<std::byte>(1 + group.rank());
      group.barrier();
      for (int place = 0; place < group.size(); ++place) {
        expect(own[static_cast<std::size_t>(place)] == static_cast<std::byte>(1 + place), "writes");
      }
    };
  };
  for (const auto& worker_of : {std::vector<int>{0, 0}, {0, 0, 1}, {0, 1, 0, 2, 2}}) {
    INFO("workers of places: " << join(worker_of));
    CHECK_NOTHROW(on_workers(worker_of, is_one(true), Backend::shared));
    CHECK_NOTHROW(on_workers(worker_of, is_one(worker_of.size() == 2), Backend::gloo));
  }
}

TEST_CASE("such groups have a copy of a buffer for each process, or for those that share memory") {
  const auto has = [](std::vector<std::vector<int>> expected) {
    return [=](groups::ReplicaGroup& group) {
      expect(group.allocate(10, comm::Copies::one).holders == expected, "holders");
      expect(group.allocate(10, comm::Copies::each).holders.empty(), "one for each");
    };
  };
  const std::vector<int> worker_of{0, 1, 0, 2, 2};
  CHECK_NOTHROW(on_workers(worker_of, has({{0, 2}, {1}, {3, 4}}), Backend::gloo));
  CHECK_NOTHROW(on_workers(worker_of, has({{0, 1, 2, 3, 4}}), Backend::shared));
  // This backend has two workers a host.
  CHECK_NOTHROW(on_workers(worker_of, has({{0, 1, 2}, {3, 4}}), Backend::hosts));
}

// A replica may change received data in a common buffer at once.
TEST_CASE("a verb into a common buffer returns when all have written to it") {
  const auto race = [](groups::ReplicaGroup& group) {
    const auto n = static_cast<std::size_t>(group.size());
    const auto me = static_cast<std::size_t>(group.rank());
    constexpr std::size_t kBytes = 30000;
    const auto buffer = group.allocate(n * kBytes, comm::Copies::one);
    const auto all = buffer.own;
    const auto own = all.subspan(me * kBytes, kBytes);
    const auto fill = [&](int round) {
      std::ranges::fill(own, static_cast<std::byte>(round + group.rank()));
    };
    const auto check = [&](int round, const char* what) {
      expect(
          std::ranges::all_of(
              own, [&](std::byte b) { return b == static_cast<std::byte>(round + group.rank()); }),
          what);
    };
    std::vector<std::byte> apart(n * kBytes);
    for (int round = 0; round < 12; ++round) {
      std::ranges::fill(apart, std::byte{3});
      group.all_gather(std::span(apart).first(kBytes), all);
      fill(round);
      group.barrier();
      check(round, "all_gather");
      group.barrier();
      if (buffer.is_common()) {
        group.all_reduce(apart, all, ElementType::uint8, ReduceOp::max);
        fill(round + 1);
        group.barrier();
        check(round + 1, "all_reduce");
        group.barrier();
      }
      group.broadcast(all, round % group.size());
      fill(round + 2);
      group.barrier();
      check(round + 2, "broadcast");
      group.barrier();
    }
  };
  for (const auto& worker_of : {std::vector<int>{0, 1, 1},
                                {0, 0, 1, 1},
                                {0, 1, 0, 2, 2},
                                {0, 1, 2, 3, 0, 1, 2, 3},
                                {0, 0, 1, 1, 2, 2, 3, 3}}) {
    INFO("workers of places: " << join(worker_of));
    for (const Backend backend : {Backend::shared, Backend::gloo, Backend::hosts}) {
      CHECK_NOTHROW(on_workers(worker_of, race, backend));
    }
  }
}

TEST_CASE("reductions on any number of workers have the bits of one alone", "[slow]") {
  std::cout << "reductions on workers: LOCKSTEP_SEED=" << testing::seed() << std::endl;
  testing::Sample sample("reductions on workers");
  for (int replicas = 1; replicas <= 9; ++replicas) {
    struct Reduction {
      ElementType type;
      ReduceOp op;
      std::vector<std::vector<std::byte>> inputs;
      std::vector<std::byte> expected;
    };
    std::vector<Reduction> reductions;
    for (const ElementType type : testing::kTypes) {
      for (const ReduceOp op : testing::kOps) {
        if (!testing::is_allowed(type, op)) continue;
        // All types have small counts, and a few types also counts that go in slices.
        const bool has_large = type == ElementType::float32 || type == ElementType::bfloat16 ||
                               type == ElementType::int64;
        for (const std::size_t count : {std::size_t{5}, std::size_t{2500}}) {
          if (count > 5 && !has_large) continue;
          const std::size_t bytes = count * static_cast<std::size_t>(replicas) * size_of(type);
          Reduction made{type, op, testing::random_inputs(replicas, bytes, type), {}};
          made.expected.resize(bytes);
          std::vector<const std::byte*> inputs;
          for (const auto& input : made.inputs) inputs.push_back(input.data());
          reduce::reduce(inputs, made.expected, type, op);
          reductions.push_back(std::move(made));
        }
      }
    }
    const auto check = [&](groups::ReplicaGroup& group) {
      const auto me = static_cast<std::size_t>(group.rank());
      for (const Reduction& one : reductions) {
        const std::string what = str(name_of(one.type), ", ", name_of(one.op));
        std::vector<std::byte> output(one.expected.size());
        group.all_reduce(one.inputs[me], output, one.type, one.op);
        expect(output == one.expected, "all_reduce of " + what);
        output = one.inputs[me];
        group.all_reduce(output, output, one.type, one.op);
        expect(output == one.expected, "all_reduce in place of " + what);
        const std::size_t slice = output.size() / static_cast<std::size_t>(group.size());
        output.resize(slice);
        group.reduce_scatter(one.inputs[me], output, one.type, one.op);
        expect(std::ranges::equal(output, std::span(one.expected).subspan(me * slice, slice)),
               "reduce_scatter of " + what);
        std::vector<std::byte> whole = one.inputs[me];
        const auto own = std::span(whole).subspan(me * slice, slice);
        group.reduce_scatter(whole, own, one.type, one.op);
        expect(std::ranges::equal(own, output), "reduce_scatter in place of " + what);
      }
    };
    for (int workers = 1; workers <= replicas; ++workers) {
      if (!sample.next()) continue;
      std::vector<int> worker_of;
      for (int worker = 0; worker < workers; ++worker) {
        const auto size = static_cast<std::size_t>(shard(replicas, workers, worker).size);
        worker_of.insert(worker_of.end(), size, worker);
      }
      const Backend backend = (replicas + workers) % 2 == 0 ? Backend::gloo : Backend::shared;
      INFO(replicas << " on " << workers << " over " << name_of(backend));
      CHECK_NOTHROW(on_workers(worker_of, check, backend));
    }
  }
}

TEST_CASE("subgroups of such groups keep their order") {
  CHECK_NOTHROW(on_workers({0, 1, 0, 1}, [](groups::ReplicaGroup& group) {
    const std::vector<int> members =
        group.rank() % 3 == 0 ? std::vector<int>{3, 0} : std::vector<int>{1, 2};
    const auto part = group.subgroup(members);
    Words mine{static_cast<float>(group.rank())};
    Words all(2);
    part->all_gather(bytes(std::as_const(mine)), bytes(all));
    expect(all == Words{static_cast<float>(members[0]), static_cast<float>(members[1])},
           "the subgroup's order");
  }));
}

TEST_CASE("calls that differ end with a mismatch on every replica, and move nothing", "[failure]") {
  for (const auto& worker_of : {std::vector<int>{0, 0, 0}, {0, 1, 2}, {0, 0, 1}}) {
    INFO("workers of places: " << join(worker_of));
    std::atomic<int> mismatches{0};
    CHECK_THROWS(on_workers(worker_of, [&](groups::ReplicaGroup& group) {
      const bool odd = group.rank() == 2;
      group.begin(calls::CallRecord{odd ? 3U : 2U, odd ? "pmean at b.cpp:2" : "psum at a.cpp:1"});
      Words words(5, 1);
      try {
        group.all_reduce(bytes(std::as_const(words)), bytes(words), kFloat, kSum);
      } catch (const CollectiveMismatch& error) {
        const std::string text = error.what();
        // The error names the replicas that have come by then.
        if (text.find("replica 2 called pmean at b.cpp:2") != std::string::npos &&
            text.find("called psum at a.cpp:1") != std::string::npos) {
          ++mismatches;
        }
        expect(words == Words(5, 1), "data has moved");
        throw;
      }
    }));
    CHECK(mismatches == 3);
  }
}

TEST_CASE("calls with other sizes end with one mismatch, which names the sizes, on every replica",
          "[failure]") {
  // In these verbs each replica needs all others: none ends before it has seen the mismatch.
  const auto sum = [](comm::Communicator& group, std::size_t count) {
    Words words(count);
    group.all_reduce(bytes(std::as_const(words)), bytes(words), kFloat, kSum);
  };
  const auto all_gather = [](comm::Communicator& group, std::size_t count) {
    const Words words(count);
    Words all(3 * count);
    group.all_gather(bytes(words), bytes(all));
  };
  for (const auto& worker_of : {std::vector<int>{0, 0, 1}, {0, 1, 2}}) {
    for (const Backend backend : {Backend::gloo, Backend::shared, Backend::hosts}) {
      for (const Verbs verb : {Verbs(sum), Verbs(all_gather)}) {
        INFO("workers of places: " << join(worker_of) << " over " << name_of(backend));
        std::latch announced(3);  // so that the message names all
        std::mutex mutex;
        std::vector<std::string> texts;
        CHECK_THROWS(on_workers(
            worker_of,
            [&](groups::ReplicaGroup& group) {
              const std::size_t count = group.rank() == 1 ? 4 : 3;
              group.begin(calls::CallRecord{count, str("x at a.cpp:1 with (", count, ") float32")});
              announced.arrive_and_wait();
              try {
                verb(group, count);
              } catch (const CollectiveMismatch& error) {
                const std::lock_guard lock(mutex);
                texts.emplace_back(error.what());
                throw;
              }
            },
            backend));
        CHECK(texts == std::vector<std::string>(
                           3,
                           "replica 1 called x at a.cpp:1 with (4) float32 while replicas 0 and "
                           "2 called x at a.cpp:1 with (3) float32"));
      }
    }
  }
}

TEST_CASE("what fails for the one who speaks for a worker's members fails for all of them",
          "[failure]") {
  const std::vector<calls::GroupMember> members{
      {.id = 1, .worker = 0}, {.id = 2, .worker = 0}, {.id = 3, .worker = 1}};
  for (const bool takes_turns : {false, true}) {
    for (const ErrorKind kind : {ErrorKind::comm, ErrorKind::lost, ErrorKind::data}) {
      INFO(traits_of(kind).name << (takes_turns ? ", in turns" : ""));
      const auto table = std::make_shared<calls::CallTable>(2);
      const auto cancellation = std::make_shared<comm::Cancellation>();
      groups::LocalReplicas local(0, std::make_shared<testing::BrokenNetwork>(0, 2, kind), table);
      comm::RunLock run_lock;
      comm::RunLock* const lock = takes_turns ? &run_lock : nullptr;
      std::deque<groups::Member> here;
      std::array<std::vector<std::string>, 2> told;
      std::vector<std::thread> threads;
      for (std::size_t place = 0; place < 2; ++place) {
        here.emplace_back(table->take_slot(0, members[place].id, 0, str(place)), cancellation,
                          std::chrono::milliseconds(30000), lock);
        threads.emplace_back([&, place, &member = here.back()] {
          const comm::RunLockScope turn(lock);
          groups::ReplicaGroup group(local.group(7, [&] { return members; }), member,
                                     static_cast<int>(place));
          group.begin(calls::CallRecord{1, "the test"});
          Words words(5, 1);
          for (int call = 0; call < 2; ++call) {  // the second call fails, too
            try {
              group.all_reduce(bytes(std::as_const(words)), bytes(words), kFloat, kSum);
            } catch (const Error& error) {
              told[place].push_back(str(traits_of(error.kind()).name, ": ", error.what()));
            }
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      const std::string text = str(traits_of(kind).name, ": it is broken");
      CHECK(told[0] == std::vector<std::string>{text, text});
      CHECK(told[1] == told[0]);
    }
  }
}

TEST_CASE("a call that is begun again meets none of the verbs of the one before", "[failure]") {
  for (const auto& worker_of : {std::vector<int>{0, 0}, {0, 1}}) {
    INFO("workers of places: " << join(worker_of));
    std::atomic<int> ended{0};
    const auto cut_short = [&](groups::ReplicaGroup& group) {
      Words words(5, 1);
      group.all_reduce(bytes(std::as_const(words)), bytes(words), kFloat, kSum);
      if (group.rank() == 1) group.begin(calls::CallRecord{1, "the test"});
      try {
        group.all_reduce(bytes(std::as_const(words)), bytes(words), kFloat, kSum);
      } catch (const CommError&) {
        if (words == Words(5, 2)) ++ended;
        throw;
      }
    };
    CHECK_THROWS_AS(on_workers(worker_of, cut_short, Backend::gloo, std::chrono::milliseconds(200)),
                    CommError);
    CHECK(ended == 2);
  }
}
