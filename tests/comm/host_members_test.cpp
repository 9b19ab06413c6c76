#include "framework/comm/host_members.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "framework/base/element_type.h"
#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/comm/communicator.h"
#include "framework/comm/store.h"
#include "framework/reduce/reduce.h"
#include "tests/catch.h"
#include "tests/comm/broken_network.h"
#include "tests/comm/replicas.h"
#include "tests/comm/symmetric_checks.h"
#include "tests/comm/words.h"
#include "tests/reduce/reductions.h"
#include "tests/support/error_kinds.h"
#include "tests/support/message_of.h"
#include "tests/support/settings.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using Hosts = std::vector<int>;

// The hosts of replicas: 2, 3 and 4 hosts with 1 to 4 members, alike and not.
const std::vector<Hosts> kHosts{{0, 1},
                                {0, 0, 1},
                                {0, 1, 1},
                                {0, 0, 1, 1},
                                {4, 4, 2, 2},
                                {0, 0, 0, 1},
                                {0, 1, 1, 2},
                                {0, 1, 1, 1, 2},
                                {0, 0, 1, 1, 2, 2},
                                {0, 0, 0, 1, 1, 1},
                                {0, 0, 1, 2, 2, 2, 3},
                                {0, 0, 0, 0, 1, 1, 1, 1},
                                {0, 0, 1, 1, 2, 2, 3, 3},
                                {0, 0, 0, 1, 1, 1, 2, 2}};

using Buffer = std::vector<std::byte>;

// The progress of the first two members of a host in their verbs. The second goes on from each only
// when the first has begun its next one, or has left them all: it is as late as it can be.
class Pace {
 public:
  void begin(int member) {
    if (member != 0) return;
    const std::lock_guard lock(mutex_);
    ++first_;
    changed_.notify_all();
  }
  void end(int member) {
    if (member != 1) return;
    std::unique_lock lock(mutex_);
    ++second_;
    changed_.wait(lock, [&] { return first_ > second_ || is_out_; });
  }
  // Notes that the first member has left.
  void leave() {
    const std::lock_guard lock(mutex_);
    is_out_ = true;
    changed_.notify_all();
  }
  // True when the second has ended all verbs that the first has begun.
  bool is_level() {
    const std::lock_guard lock(mutex_);
    return first_ == second_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int first_ = 0;
  int second_ = 0;
  bool is_out_ = false;
};

// A group of a host's members, at that pace.
class Paced final : public comm::Communicator {
 public:
  Paced(std::shared_ptr<comm::Communicator> group, int member, Pace& pace)
      : Communicator(group->rank(), group->size()),
        group_(std::move(group)),
        member_(member),
        pace_(pace) {}
  ~Paced() override {
    if (member_ == 0) pace_.leave();
  }

  void run(const comm::Verb& verb) override {
    group_->mark(current_mark());
    pace_.begin(member_);
    group_->run(verb);
    pace_.end(member_);
  }
  void interrupt(const std::exception_ptr& error) noexcept override { group_->interrupt(error); }
  void abort(const std::string& reason) noexcept override { group_->abort(reason); }
  bool is_network() const noexcept override { return group_->is_network(); }
  bool shares_memory() const noexcept override { return group_->shares_memory(); }
  comm::SharedAddress shared_address(std::span<const std::byte> memory) const override {
    return group_->shared_address(memory);
  }
  const comm::Ledger& ledger() const noexcept override { return group_->ledger(); }

 private:
  std::shared_ptr<Communicator> do_subgroup(std::span<const int> members, int /*own_place*/,
                                            std::uint64_t channel) override {
    return std::make_shared<Paced>(group_->subgroup(members, channel), member_, pace_);
  }

  std::shared_ptr<comm::Communicator> group_;
  int member_;
  Pace& pace_;
};

// Makes a job of one host's members, at that pace, and one of another. `network` joins the hosts.
std::shared_ptr<comm::Communicator> paced_job(comm::Communicator& here, Pace& pace,
                                              std::shared_ptr<comm::Communicator> network) {
  const std::shared_ptr<comm::Communicator> group(&here, [](comm::Communicator*) {});
  Hosts hosts(static_cast<std::size_t>(here.size()), 0);
  hosts.push_back(1);
  return comm::join_hosts(std::make_shared<Paced>(group, here.rank(), pace), std::move(network),
                          std::move(hosts));
}

// Checks every reduction of random bits, with each of `counts` elements for each replica.
void check_reductions_of(comm::Communicator& group, const std::vector<std::size_t>& counts) {
  const auto n = static_cast<std::size_t>(group.size());
  const auto me = static_cast<std::size_t>(group.rank());
  for (const ElementType type : kTypes) {
    const std::size_t width = size_of(type);
    const std::size_t most = counts.back() * width;
    std::vector<Buffer> inputs =
        lockstep::testing::random_inputs(static_cast<int>(n), n * most, type);
    for (const ReduceOp op : kOps) {
      if (!is_allowed(type, op)) continue;
      for (const std::size_t count : counts) {
        const std::string text = str(" of ", count, " ", name_of(type), ", ", name_of(op));
        const std::size_t bytes = n * count * width;
        std::vector<const std::byte*> pointers;
        for (const Buffer& input : inputs) pointers.push_back(input.data());
        Buffer expected(bytes);
        reduce::reduce(pointers, expected, type, op);

        const auto mine = std::span(inputs[me]).first(bytes);
        Buffer output(bytes, std::byte{0xaa});
        group.all_reduce(mine, output, type, op);
        expect(same(output, expected), "all_reduce" + text);
        output.resize(count * width);
        group.reduce_scatter(mine, output, type, op);
        expect(same(output, std::span(expected).subspan(me * count * width, count * width)),
               "reduce_scatter" + text);
      }
    }
  }
}

// Checks all verbs but reductions, of `count` words.
void check_other_verbs(comm::Communicator& group, std::size_t count) {
  const int n = group.size();
  const Words mine = values_of(group.rank(), count);
  Words gathered(count * static_cast<std::size_t>(n));
  group.all_gather(bytes(mine), bytes(gathered));
  for (int from = 0; from < n; ++from) {
    expect(same(slice(gathered, static_cast<std::size_t>(from) * count, count),
                values_of(from, count)),
           str("all_gather of ", count));
  }
  const auto length = [&](int from, int to) {
    return (from + 2 * to) % 4 == 3 ? 0 : count + static_cast<std::size_t>((3 * from + to) % 5);
  };
  Words sent;
  Words expected;
  std::vector<std::size_t> send_sizes;
  std::vector<std::size_t> recv_sizes;
  for (int peer = 0; peer < n; ++peer) {
    const Words to = values_of(group.rank() * n + peer, length(group.rank(), peer));
    const Words from = values_of(peer * n + group.rank(), length(peer, group.rank()));
    sent.insert(sent.end(), to.begin(), to.end());
    expected.insert(expected.end(), from.begin(), from.end());
    send_sizes.push_back(to.size() * sizeof(float));
    recv_sizes.push_back(from.size() * sizeof(float));
  }
  Words received(expected.size());
  group.all_to_all(bytes(sent), send_sizes, bytes(received), recv_sizes);
  expect(same(received, expected), str("all_to_all of ", count));
  for (int root = 0; root < n; ++root) {
    Words data = mine;
    group.broadcast(bytes(data), root);
    expect(same(data, values_of(root, count)), str("broadcast of ", count, " from ", root));
  }
  group.barrier();
}

// Returns the world of `replicas`, and subgroups in odd orders: all backwards, all mixed, every
// second one, the last and the first.
std::vector<std::vector<int>> groups_of(int replicas) {
  std::vector<int> backwards = everyone(replicas);
  std::ranges::reverse(backwards);
  std::vector<int> mixed;
  std::vector<int> second;
  for (int member = 0; member < replicas; ++member) {
    mixed.push_back((member + replicas / 2) % replicas);
    if (member % 2 == 1) second.push_back(member);
  }
  std::swap(mixed.front(), mixed.back());
  std::vector<std::vector<int>> groups{
      everyone(replicas), backwards, mixed, second, {replicas - 1, 0}};
  if (replicas >= 4) groups.push_back({2, 0, 1});
  return groups;
}

void in_each_group(comm::Communicator& world, const ReplicaFunction& body) {
  std::uint64_t channel = 0;
  for (const auto& members : groups_of(world.size())) {
    ++channel;
    if (std::ranges::count(members, world.rank()) == 0) continue;
    body(*world.subgroup(members, channel));
  }
}

// Returns the bytes that all replicas send in `body` over the network.
std::uint64_t sent_in(const Hosts& hosts, const ReplicaFunction& body) {
  std::atomic<std::uint64_t> sent = 0;
  in_threads_on(hosts, [&](comm::Communicator& group) {
    const std::uint64_t before = group.ledger().bytes_sent;
    body(group);
    sent += group.ledger().bytes_sent - before;
  });
  return sent;
}

}  // namespace

TEST_CASE("groups of any members of several hosts have the bits of one replica", "[hosts]") {
  std::cout << "hosts: LOCKSTEP_SEED=" << seed() << std::endl;
  Sample sample("hosts");
  for (const Hosts& hosts : kHosts) {
    INFO("hosts of replicas: " << join(hosts));
    if (sample.next()) {
      CHECK_NOTHROW(in_threads_on(hosts, [](comm::Communicator& world) {
        in_each_group(world, [](comm::Communicator& group) {
          check_reductions_of(group, {5, 400});
        });
      }));
    }
    if (sample.next()) {
      CHECK_NOTHROW(in_threads_on(hosts, [](comm::Communicator& world) {
        in_each_group(world, [](comm::Communicator& group) {
          for (const std::size_t count : {0, 37, 6000}) check_other_verbs(group, count);
        });
      }));
    }
  }
}

// A piece has about 1 MiB.
TEST_CASE("verbs of several hosts in many pieces have the bits of one replica", "[hosts][bulk]") {
  for (const Hosts& hosts : {Hosts{0, 0, 1, 1}, {0, 1, 1, 2}}) {
    INFO("hosts of replicas: " << join(hosts));
    CHECK_NOTHROW(
        in_threads_on(hosts, [](comm::Communicator& group) { check_symmetric(group, 1100003); }));
  }
}

TEST_CASE("a mean in pieces is divided once, by all replicas", "[hosts][bulk]") {
  constexpr std::size_t kCount = 2200002;
  for (const Hosts& hosts : {Hosts{0, 0, 1, 1}, {0, 0, 1, 1, 2, 2}}) {
    const auto replicas = static_cast<int>(hosts.size());
    Words expected = sum_of(everyone(replicas), kCount);
    for (float& each : expected) each /= static_cast<float>(replicas);
    CHECK_NOTHROW(in_threads_on(hosts, [&](comm::Communicator& group) {
      Words words = values_of(group.rank(), kCount);
      group.all_reduce(bytes(words), bytes(words), kFloat, ReduceOp::mean);
      expect(same(words, expected), "all_reduce");
    }));
  }
}

TEST_CASE("hosts send what hosts with one replica each would send", "[hosts]") {
  constexpr std::size_t kCount = 840 * 2048;  // a multiple of every group's size
  const auto verbs = [](comm::Communicator& group) {
    const auto n = static_cast<std::size_t>(group.size());
    Words whole(kCount);
    Words part(kCount / n);
    group.all_reduce(bytes(whole), bytes(whole), kFloat, kSum);
    group.reduce_scatter(bytes(whole), bytes(part), kFloat, ReduceOp::mean);
    group.all_gather(bytes(part), bytes(whole));
    group.broadcast(bytes(whole), 0);
    whole.resize(500);
    group.all_reduce(bytes(whole), bytes(whole), kFloat, ReduceOp::max);
  };
  const std::uint64_t two = sent_in({0, 1}, verbs);
  CHECK(two == (2 + 1 + 1 + 1) * kCount * sizeof(float) + 2 * 500 * sizeof(float));
  CHECK(sent_in({0, 0, 1, 1}, verbs) == two);
  CHECK(sent_in({0, 0, 0, 0, 1, 1, 1, 1}, verbs) == two);
  // A broadcast is cut into slices, here of 7 pieces, which are rounded to bytes.
  const std::uint64_t three = sent_in({0, 1, 2}, verbs);
  CHECK(sent_in({0, 0, 1, 1, 2, 2}, verbs) <= three + 2 * 7);
  CHECK(sent_in({0, 0, 1, 1, 2, 2}, verbs) >= three - 2 * 7);
}

TEST_CASE("a group on one host sends nothing over the network", "[hosts]") {
  std::atomic<std::uint64_t> sent = 0;
  CHECK_NOTHROW(in_threads_on({0, 0, 0, 1, 1}, [&](comm::Communicator& world) {
    const bool first = world.rank() < 3;
    const auto group = world.subgroup(first ? std::vector<int>{2, 0, 1} : std::vector<int>{4, 3});
    expect(world.is_network() && !group->is_network(), "is_network()");
    const std::uint64_t before = world.ledger().bytes_sent;
    check_symmetric(*group, 70001);
    sent += world.ledger().bytes_sent - before;
    world.barrier();
  }));
  CHECK(sent == 0);
}

TEST_CASE("of a buffer that a group on several hosts has in common each host has a copy",
          "[hosts]") {
  CHECK_NOTHROW(in_threads_on({0, 0, 0, 1, 2, 2}, [](comm::Communicator& world) {
    expect(world.allocate(1000, comm::Copies::each).holders.empty(), "each has its own");
    const comm::SymmetricBuffer buffer = world.allocate(6, comm::Copies::one);
    expect(buffer.holders == std::vector<std::vector<int>>{{0, 1, 2}, {3}, {4, 5}}, "holders");
    expect(!buffer.is_common(), "is_common()");
    expect(world.shared_address(buffer.own).extent == 0, "shared_address()");
    const int me = world.rank();
    buffer.own[static_cast<std::size_t>(me)] = std::byte{1};
    world.barrier();
    for (const auto& holders : buffer.holders) {
      const bool is_own = std::ranges::count(holders, me) > 0;
      for (const int holder : holders) {
        expect((buffer.own[static_cast<std::size_t>(holder)] == std::byte{1}) == is_own, "writes");
      }
    }
    world.barrier();
    const auto here = world.subgroup(me < 3    ? std::vector{2, 0, 1}
                                     : me == 3 ? std::vector{3}
                                               : std::vector{4, 5});
    expect(Symmetric(*here, 1000, comm::Copies::one).is_common(), "of one host");
    world.barrier();
  }));
}

TEST_CASE("large messages go into a buffer that the members of a host have in common", "[hosts]") {
  for (const std::vector<int>& host_of : {std::vector{0, 0, 1, 1}, {0, 0, 0, 1, 1}}) {
    INFO("hosts: " << join(host_of));
    CHECK_NOTHROW(in_threads_on(host_of, [](comm::Communicator& world) {
      constexpr std::size_t kEach = 700001;  // several pieces
      const auto n = static_cast<std::size_t>(world.size());
      const auto me = static_cast<std::size_t>(world.rank());
      const Symmetric common(world, n * kEach, comm::Copies::one);
      const auto all = common.floats(0, n * kEach);
      const auto own = common.floats(me * kEach, kEach);
      // A member may change its output as soon as a verb returns.
      const auto check_each = [&](const auto& value_of, const std::string& what) {
        expect(std::ranges::all_of(own, [&](float value) { return value == value_of(me); }), what);
        std::ranges::fill(own, -1.0F);
        world.barrier();
        expect(std::ranges::all_of(own, [&](float value) { return value == -1.0F; }),
               "after " + what);
        world.barrier();
      };
      std::ranges::fill(own, static_cast<float>(me));
      world.all_gather(raw(own), raw(all));
      for (std::size_t place = 0; place < n; ++place) {
        expect(common.floats(place * kEach, kEach).back() == static_cast<float>(place), "gathered");
      }
      world.barrier();
      check_each([](std::size_t place) { return static_cast<float>(place); }, "all_gather");
      if (me + 1 == n) std::ranges::fill(all, 7.0F);
      world.broadcast(raw(all), world.size() - 1);
      check_each([](std::size_t) { return 7.0F; }, "broadcast");
    }));
  }
}

TEST_CASE("one group is interrupted, and others go on", "[hosts][failure]") {
  CHECK_NOTHROW(in_threads_on({0, 0, 1, 1}, [](comm::Communicator& world) {
    const auto group = world.subgroup(everyone(4), 1);
    Words words(70001);
    group->all_reduce(bytes(words), bytes(words), kFloat, kSum);
    world.barrier();
    group->interrupt(std::make_exception_ptr(Timeout("enough")));
    const std::string text =
        message_of<Timeout>([&] { group->all_reduce(bytes(words), bytes(words), kFloat, kSum); });
    expect(text == "enough", text);
    check_other_verbs(world, 5000);
  }));
}

TEST_CASE("if a host's replicas do not come, all of another host are told in time",
          "[hosts][failure]") {
  comm::ConnectOptions options;
  options.timeout = std::chrono::milliseconds(300);
  for (const std::size_t count : {10U, 2000000U}) {
    std::atomic<int> waiting = 2;
    CHECK_NOTHROW(in_threads_on(
        {0, 0, 1, 1},
        [&](comm::Communicator& group) {
          if (group.rank() >= 2) {
            for (int left = waiting; left > 0; left = waiting) waiting.wait(left);
            return;
          }
          std::string text = "it was summed";
          try {
            Words words(count);
            group.all_reduce(bytes(words), bytes(words), kFloat, kSum);
          } catch (const Timeout& error) {
            text = error.what();
          }
          --waiting;
          waiting.notify_all();
          expect(text.find("waited 300 ms") != std::string::npos, text);
        },
        options));
  }
}

TEST_CASE("what the leader has lost, the other members of its host are told", "[hosts][failure]") {
  for (const std::size_t count : {10U, 3000000U}) {
    CHECK_THROWS_WITH(
        in_processes_on({0, 0, 1, 1},
                        [&](comm::Communicator& group) {
                          if (group.rank() >= 2) ::_exit(0);
                          Words words(count);
                          group.all_reduce(bytes(words), bytes(words), kFloat, kSum);
                        }),
        ContainsSubstring("replica 0: replica 0 lost its connection to replica 2") &&
            ContainsSubstring("replica 1: replica 0 lost its connection to replica 2"));
  }
}

TEST_CASE("an error of the leader's is of the same type for all members of its host",
          "[hosts][failure]") {
  for (const ErrorKind kind : error_kinds()) {
    INFO(traits_of(kind).name);
    CHECK_NOTHROW(in_threads(Backend::shared, 2, [&](comm::Communicator& here) {
      const std::shared_ptr<comm::Communicator> local(&here, [](comm::Communicator*) {});
      const auto network = std::make_shared<BrokenNetwork>(here.rank(), 3, kind);
      const auto world = comm::join_hosts(local, network, {0, 0, 1});
      for (const std::size_t count : {10U, 3000000U}) {
        Words words(count);
        try {
          world->all_reduce(bytes(words), bytes(words), kFloat, kSum);
          throw std::runtime_error("it was summed");
        } catch (const Error& error) {
          expect(error.kind() == kind, str("replica ", here.rank(), ": ", error.type()));
          expect(std::string(error.what()) == "it is broken", error.what());
        }
        here.barrier();
      }
    }));
  }
}

// The second of the leader's two pieces fails. Between the ends of the two nobody waits for anybody
// but to be told of them.
TEST_CASE("no member of a host reads why the leader has failed before that is written",
          "[hosts][failure]") {
  Pace pace;
  CHECK_NOTHROW(in_threads(Backend::shared, 2, [&](comm::Communicator& here) {
    const auto world =
        paced_job(here, pace, std::make_shared<BrokenNetwork>(here.rank(), 3, ErrorKind::comm, 64));
    Words words((std::size_t{1} << 18) + 4);  // 1 MiB, and 16 bytes
    const std::string text =
        message_of<CommError>([&] { world->all_reduce(bytes(words), bytes(words), kFloat, kSum); });
    expect(text == "it is broken", text);
    expect(here.rank() == 0 || pace.is_level(), "it has read the error before it was told");
  }));
}

TEST_CASE("verbs of other sizes on one host are a mismatch for all of its members",
          "[hosts][failure]") {
  using Group = comm::Communicator;
  constexpr auto kHalf = ElementType::bfloat16;
  // Each of these takes the number of words of a member.
  const std::vector<std::pair<std::string, std::function<void(Group&, std::size_t)>>> verbs{
      {"broadcast",
       [](Group& group, std::size_t count) {
         Words words(count);
         group.broadcast(bytes(words), 2);
       }},
      {"all_gather",
       [](Group& group, std::size_t count) {
         const Words words(count);
         Words all(3 * count);
         group.all_gather(bytes(words), bytes(all));
       }},
      {"all_reduce",
       [](Group& group, std::size_t count) {
         Words words(count);
         group.all_reduce(bytes(words), bytes(words), kFloat, kSum);
       }},
      {"all_reduce of halves",
       [](Group& group, std::size_t count) {
         Words words(count);
         group.all_reduce(bytes(words), bytes(words), kHalf, kSum);
       }},
      {"reduce_scatter of halves", [](Group& group, std::size_t count) {
         const Words words(3 * count);
         Words own(count);
         group.reduce_scatter(bytes(words), bytes(own), kHalf, kSum);
       }}};
  for (const auto& [name, verb] : verbs) {
    INFO(name);
    std::atomic<int> told = 0;
    CHECK_THROWS_AS(in_threads_on({0, 0, 1},
                                  [&, &call = verb](comm::Communicator& group) {
                                    try {
                                      call(group, group.rank() == 1 ? 4 : 3);
                                    } catch (const CollectiveMismatch& error) {
                                      const std::string text = error.what();
                                      if (text.find("with other sizes") != std::string::npos) {
                                        ++told;
                                      }
                                      throw;
                                    }
                                  }),
                    CollectiveMismatch);
    CHECK(told == 2);
  }
}

// Two of the host's three members have one output together. They may change it as soon as a verb
// returns.
TEST_CASE("who shares an output with some of a host's members waits until these have written it",
          "[hosts]") {
  Pace pace;
  CHECK_NOTHROW(in_threads(Backend::shared, 3, [&](comm::Communicator& here) {
    const auto world =
        paced_job(here, pace, std::make_shared<BrokenNetwork>(here.rank(), 4, ErrorKind::comm, 0));
    const Words words(10, static_cast<float>(here.rank()));
    Words own(40);
    auto output = bytes(own);
    comm::SymmetricBuffer common;
    if (here.rank() < 2) {
      common = here.subgroup(std::vector<int>{0, 1})->allocate(output.size(), comm::Copies::one);
      output = common.own;
    }
    world->all_gather(bytes(words), output);
    const Words second(10, 1.0F);  // what member 1 has sent
    const bool is_gathered = same(output.subspan(40, 40), bytes(second));
    if (here.rank() == 0) {
      std::ranges::fill(output, std::byte{7});
      pace.leave();
    }
    here.barrier();
    expect(here.rank() == 1 || is_gathered, "what was gathered");
    const bool is_changed =
        std::ranges::all_of(output, [](std::byte each) { return each == std::byte{7}; });
    expect(is_changed == (here.rank() < 2), "another member has written after the verb");
  }));
}

TEST_CASE("what does not fit together is not joined", "[hosts]") {
  const auto refused = [](const std::shared_ptr<comm::Communicator>& all, const Hosts& hosts,
                          const std::string& why) {
    expect_error<ValueError>([&] { (void)comm::join_hosts(all, all, hosts); }, why);
  };
  CHECK_NOTHROW(in_threads(Backend::gloo, 3, [&](comm::Communicator& network) {
    const std::shared_ptr<comm::Communicator> all(&network, [](comm::Communicator*) {});
    refused(all, {0, 1}, "2 workers have a host, but there are 3");
    refused(all, {0, 1, 0}, "the workers of host 0 are not next to each other");
    refused(all, {0, 0, 1}, "on its host, but");
    network.barrier();
  }));
}
