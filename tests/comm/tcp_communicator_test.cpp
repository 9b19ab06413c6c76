#include "framework/comm/network/tcp_communicator.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <future>
#include <iostream>
#include <latch>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "framework/base/descriptor.h"
#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/comm/memory_store.h"
#include "framework/comm/network/connect.h"
#include "framework/comm/network/greeting.h"
#include "framework/comm/network/listener.h"
#include "framework/timeline/recorder.h"
#include "tests/catch.h"
#include "tests/comm/replicas.h"
#include "tests/comm/words.h"
#include "tests/support/message_of.h"
#include "tests/support/settings.h"

using namespace lockstep;
using namespace std::chrono_literals;
using comm::Communicator;
using comm::HostAndPort;
using testing::Backend;
using testing::bytes;
using testing::everyone;
using testing::expect;
using testing::in_threads;
using testing::message_of;
using testing::network;
using testing::same;
using testing::sum_of;
using testing::values_of;
using testing::Words;

namespace {

constexpr auto kLongEnough = 30s;
constexpr std::size_t kMillion = 1'000'003;  // floats

template <typename Call>
auto in_background(Call call) {
  return std::async(std::launch::async, std::move(call));
}

void send_to(Communicator& group, int to, const Words& words) {
  group.permute(bytes(words), to, {}, Communicator::kNobody);
}
Words receive_from(Communicator& group, int from, std::size_t count) {
  Words words(count);
  group.permute({}, Communicator::kNobody, bytes(words), from);
  return words;
}
Words summed(Communicator& group, const Words& mine) {
  Words sum(mine.size());
  group.all_reduce(bytes(mine), bytes(sum), testing::kFloat, testing::kSum);
  return sum;
}

// Replicas that one thread connects, since connecting waits for nobody.
struct Replicas {
  explicit Replicas(int count, const comm::ConnectOptions& options = {}) {
    for (int rank = 0; rank < count; ++rank) {
      all.push_back(comm::connect_tcp(store, rank, count, network(), options));
    }
  }
  Communicator& operator[](std::size_t rank) { return *all[rank]; }
  [[nodiscard]] HostAndPort address_of(int rank) const {
    return HostAndPort::parse(store->get(str("address/", rank), kLongEnough));
  }

  std::shared_ptr<comm::MemoryStore> store = std::make_shared<comm::MemoryStore>();
  std::vector<std::shared_ptr<Communicator>> all;
};

Descriptor stranger_of(const HostAndPort& at) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(at.port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  (void)::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to);
  return socket;
}

// Returns a stranger's text, of any length.
std::string noise(Key key) {
  const std::string protocol(comm::kProtocol.begin(), comm::kProtocol.end());
  std::string text(key.fold("kind").bits() % 3 == 0 ? protocol : "");
  const std::size_t size = key.fold("size").bits() % 200;
  for (std::size_t i = 0; i < size; ++i) {
    text += static_cast<char>(key.fold(i).bits() & 0xff);
  }
  return text;
}

void say(const Descriptor& socket, const void* data, std::size_t size) {
  (void)::send(socket.get(), data, size, MSG_NOSIGNAL);
}

// A frame of TcpConnection.
struct Frame {
  std::uint32_t kind;
  std::uint32_t bytes = 0;
  std::uint64_t slot = 0;
  std::uint64_t whole = 0;
  std::uint64_t id = 0;
  std::uint64_t group = 0;
};
enum : std::uint32_t { kStart, kSmall, kReady, kPart, kWithdrawn, kGoodbye };
constexpr Frame kStarts{.kind = kStart, .slot = 0x6c6f636b73740001};

// Connects as replica 1 of 2, which knows the secret and breaks the rules.
Descriptor bad_peer_of(const HostAndPort& at) {
  const auto link = comm::connect(at, network().secret, kLongEnough, network().job);
  link->send("replica 1 of 2");
  std::optional<std::string> answer;
  while (!answer && link->is_open()) {
    wait_for(link->polled(), 100ms);
    link->progress();
    answer = link->receive();
  }
  if (answer != "welcome") throw Error("not welcome");
  Descriptor socket = link->release();
  (void)::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) & ~O_NONBLOCK);
  return socket;
}

}  // namespace

TEST_CASE("a connection is made when a group needs it first", "[tcp]") {
  std::latch all_have_looked(8);
  CHECK_NOTHROW(in_threads(Backend::tcp, 8, [&](Communicator& world) {
    const auto& connections = world.ledger().connections;
    const bool has_none = connections == 0;
    all_have_looked.arrive_and_wait();
    expect(has_none, "none at first");
    if (world.rank() == 2 || world.rank() == 5) {
      const std::vector<int> pair{5, 2};
      const auto group = world.subgroup(pair);
      for (const std::size_t count : {1, 100000}) {
        const Words mine = values_of(group->rank(), count);
        expect(same(summed(*group, mine), sum_of(everyone(2), count)), "the sum");
      }
      expect(connections == 1, "one for a pair");
    }
  }));
  CHECK_NOTHROW(in_threads(Backend::tcp, 8, [](Communicator& world) {
    world.barrier();
    expect(world.ledger().connections == 7, "one to each other replica");
    world.barrier();  // nobody ends before all have looked
  }));
  const auto store = std::make_shared<comm::MemoryStore>();
  const auto alone = comm::connect_tcp(store, 0, 1, network());
  alone->barrier();
  CHECK_THROWS_AS((void)store->get("address/0", 0ms), Timeout);
}

class CountingStore final : public comm::Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    ++keys;
    store_.set(key, value);
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    return store_.get(key, timeout);
  }
  std::atomic<int> keys{0};

 private:
  comm::MemoryStore store_;
};

// The figures are those of connect_tcp()'s comment.
TEST_CASE("keys and connections grow with what the schedules need", "[tcp][bulk]") {
  const std::vector<std::pair<int, std::uint64_t>> counts{{2, 1},  {4, 3},   {8, 7},
                                                          {16, 6}, {32, 10}, {64, 15}};
  for (const auto& [count, connections] : counts) {
    const auto store = std::make_shared<CountingStore>();
    std::vector<std::shared_ptr<Communicator>> all;
    for (int rank = 0; rank < count; ++rank) {
      all.push_back(comm::connect_tcp(store, rank, count, network()));
    }
    for (const std::size_t words : {std::size_t{256}, std::size_t{1} << 19}) {
      const Words expected = sum_of(everyone(count), words);
      std::vector<std::future<void>> done;
      for (const auto& each : all) {
        done.push_back(in_background([&] {
          expect(same(summed(*each, values_of(each->rank(), words)), expected), "the sum");
        }));
      }
      for (auto& each : done) each.get();
    }
    for (const auto& each : all) CHECK(each->ledger().connections == connections);
    CHECK(store->keys == count);
  }
}

TEST_CASE("both ends may begin a connection at once", "[tcp]") {
  for (int round = 0; round < 30; ++round) {
    Replicas replicas(4);
    std::vector<std::future<void>> all;
    for (const auto& each : replicas.all) {
      all.push_back(in_background([&each] { each->barrier(); }));
    }
    for (auto& each : all) CHECK_NOTHROW(each.get());
    for (const auto& each : replicas.all) CHECK(each->ledger().connections == 3);
  }
}

TEST_CASE("messages that come before they are awaited are kept, in order", "[tcp]") {
  Replicas replicas(2);
  // Words of each message; 100 of 64 KiB in a row.
  std::vector<std::size_t> counts{1, 16384, 3, 16383, 7};
  counts.insert(counts.end(), 100, 16384);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    send_to(replicas[0], 1, values_of(static_cast<int>(i), counts[i]));
  }
  for (std::size_t i = 0; i < counts.size(); ++i) {
    CHECK(same(receive_from(replicas[1], 0, counts[i]), values_of(static_cast<int>(i), counts[i])));
  }
}

TEST_CASE("a sender that runs far ahead waits, and all of it comes", "[tcp]") {
  Replicas replicas(2);
  constexpr int kMany = 1000;  // 62 MiB
  auto sent = in_background([&] {
    for (int i = 0; i < kMany; ++i) send_to(replicas[0], 1, Words(16384, static_cast<float>(i)));
    send_to(replicas[0], 1, values_of(5, kMillion));
  });
  for (int i = 0; i < kMany; ++i) {
    REQUIRE(same(receive_from(replicas[1], 0, 16384), Words(16384, static_cast<float>(i))));
  }
  CHECK(same(receive_from(replicas[1], 0, kMillion), values_of(5, kMillion)));
  CHECK_NOTHROW(sent.get());
}

TEST_CASE("a large message that nobody awaits holds up no other group", "[tcp]") {
  Replicas replicas(2);
  std::array<std::shared_ptr<Communicator>, 2> others;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    others[rank] = replicas[rank].subgroup(everyone(2), 7);
  }
  auto sent = in_background([&] { send_to(replicas[0], 1, values_of(1, kMillion)); });
  for (const std::size_t count : {std::size_t{10}, kMillion}) {
    auto other = in_background([&] { send_to(*others[0], 1, values_of(2, count)); });
    CHECK(same(receive_from(*others[1], 0, count), values_of(2, count)));
    other.get();
  }
  CHECK(same(receive_from(replicas[1], 0, kMillion), values_of(1, kMillion)));
  sent.get();
}

TEST_CASE("a group that is interrupted leaves the connection to the others", "[tcp][failure]") {
  std::cout << "interrupts: LOCKSTEP_SEED=" << testing::seed() << std::endl;
  constexpr int kRounds = 20;
  constexpr std::size_t kSteady = 50'003;
  Replicas replicas(2);
  std::array<std::shared_ptr<Communicator>, 2> steady;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    steady[rank] = replicas[rank].subgroup(everyone(2), 1);
  }
  std::atomic<bool> is_over{false};
  const auto go_on = [&](std::size_t rank) {
    Words more(1);
    for (int i = 0; more[0] == 0; ++i) {
      const Words mine = values_of(static_cast<int>(rank) + 2 * i, kSteady);
      expect(same(summed(*steady[rank], mine), sum_of({2 * i, 2 * i + 1}, kSteady)), "steady");
      more = summed(*steady[rank], {rank == 0 && is_over ? 1.0F : 0.0F});
    }
  };
  auto first = in_background([&] { go_on(0); });
  auto second = in_background([&] { go_on(1); });
  for (int round = 0; round < kRounds; ++round) {
    const Key key = Key(testing::seed()).fold("interrupts").fold(round);
    const auto whose = key.fold("rank").bits() % 2;
    const std::size_t count = key.fold("size").bits() % 4 == 0 ? 100 : kMillion;
    std::array<std::shared_ptr<Communicator>, 2> cut;
    std::array<std::future<std::string>, 2> ended;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      cut[rank] = replicas[rank].subgroup(everyone(2), 100 + static_cast<std::uint64_t>(round));
      ended[rank] = in_background([&, rank, group = cut[rank]] {
        return message_of<Error>([&] {
          for (;;) {
            const Words mine = values_of(static_cast<int>(rank), count);
            expect(same(summed(*group, mine), sum_of(everyone(2), count)), "cut");
          }
        });
      });
    }
    // The interrupt comes somewhere in a message: after so many bytes have gone.
    const std::uint64_t until =
        replicas[whose].ledger().bytes_sent + key.fold("at").bits() % (4 * count + 1);
    while (replicas[whose].ledger().bytes_sent < until) std::this_thread::yield();
    cut[whose]->interrupt(std::make_exception_ptr(Error("cut off")));
    CHECK(ended[whose].get() == "cut off");
    cut[1 - whose]->interrupt(std::make_exception_ptr(Error("cut off, too")));
    CHECK(ended[1 - whose].get() == "cut off, too");
  }
  is_over = true;
  CHECK_NOTHROW(first.get());
  CHECK_NOTHROW(second.get());
}

TEST_CASE("what comes for an interrupted group is dropped", "[tcp][failure]") {
  Replicas replicas(2);
  const auto sender = replicas[0].subgroup(everyone(2), 1);
  const auto ended = replicas[1].subgroup(everyone(2), 1);
  constexpr int kMore = 600;  // than is kept: 38 MiB
  for (int i = 0; i < 10; ++i) send_to(*sender, 1, Words(16384));
  send_to(replicas[0], 1, {1});
  CHECK(same(receive_from(replicas[1], 0, 1), Words{1}));  // by now the others are there
  ended->interrupt(std::make_exception_ptr(Error("cut off")));
  for (int i = 0; i < kMore; ++i) send_to(*sender, 1, Words(16384));
  send_to(replicas[0], 1, {2});
  CHECK(same(receive_from(replicas[1], 0, 1), Words{2}));
}

TEST_CASE("what was sent before a replica ended is there, then it is lost", "[tcp][failure]") {
  Replicas replicas(3);
  send_to(replicas[0], 1, {1, 2, 3});
  auto waits = in_background([&] {
    return message_of<ReplicaLost>([&] { (void)receive_from(replicas[2], 0, kMillion); });
  });
  replicas.all[0] = nullptr;
  CHECK(same(receive_from(replicas[1], 0, 3), Words{1, 2, 3}));
  CHECK(message_of<ReplicaLost>([&] { (void)receive_from(replicas[1], 0, 3); }) ==
        "replica 1 lost its connection to replica 0 (it has ended)");
  CHECK_THAT(waits.get(), ContainsSubstring("replica 2 lost its connection to replica 0 ("));
  const auto pair = std::vector<int>{1, 2};
  const auto one = replicas[1].subgroup(pair);
  const auto two = replicas[2].subgroup(pair);
  auto sent = in_background([&] { send_to(*one, 1, values_of(1, kMillion)); });
  CHECK(same(receive_from(*two, 0, kMillion), values_of(1, kMillion)));
  sent.get();
}

TEST_CASE("what comes from other hosts is recorded while it is on its way", "[tcp]") {
  timeline::Recorder recorder(1);
  const auto store = std::make_shared<comm::MemoryStore>();
  const auto one =
      comm::connect_tcp(store, 0, 2, network(), {}, {recorder.take(0, "network"), {4, 7}});
  const auto two = comm::connect_tcp(store, 1, 2, network());
  for (const std::size_t count : {std::size_t{1000}, kMillion, std::size_t{10}, kMillion}) {
    auto sent = in_background([&] { send_to(*two, 0, values_of(1, count)); });
    CHECK(same(receive_from(*one, 1, count), values_of(1, count)));
    sent.get();
  }
  std::vector<timeline::Recorder::Span> spans;
  const auto until = std::chrono::steady_clock::now() + kLongEnough;
  while (spans.size() < 2 && std::chrono::steady_clock::now() < until) {
    spans = recorder.read(0, 0).spans;  // written right after the message was there
  }
  REQUIRE(spans.size() == 2);  // of the large ones
  for (const auto& span : spans) {
    CHECK((span.kind == timeline::SpanKind::transfer && span.id == 7));
    CHECK(span.bytes == kMillion * sizeof(float));
    CHECK(span.end > span.begin);
  }
  CHECK(spans[1].begin >= spans[0].end);
}

TEST_CASE("a peer that ends in the middle of a message is lost at once", "[tcp][failure]") {
  const bool is_large = GENERATE(true, false);
  const auto store = std::make_shared<comm::MemoryStore>();
  const auto group = comm::connect_tcp(store, 0, 2, network());
  Descriptor peer = bad_peer_of(HostAndPort::parse(store->get("address/0", kLongEnough)));
  say(peer, &kStarts, sizeof kStarts);
  auto waits = in_background([&] {
    return message_of<ReplicaLost>(
        [&] { (void)receive_from(*group, 1, is_large ? kMillion : 1000); });
  });
  if (is_large) {
    std::array<Frame, 2> got{};  // its start, and that it is ready
    REQUIRE(::recv(peer.get(), got.data(), sizeof got, MSG_WAITALL) == sizeof got);
    REQUIRE(got[1].kind == kReady);
    CHECK(got[1].whole == kMillion * sizeof(float));
    const Frame part{.kind = kPart, .bytes = 100'000, .id = got[1].id};
    say(peer, &part, sizeof part);
  } else {
    const Frame small{.kind = kSmall, .bytes = 4000, .whole = 4000};
    say(peer, &small, sizeof small);
  }
  const std::string some(999, 'x');
  say(peer, some.data(), some.size());
  peer.close();
  CHECK_THAT(waits.get(), ContainsSubstring("replica 0 lost its connection to replica 1 ("));
}

TEST_CASE("frames that break the rules end the connection, with the reason", "[tcp][failure]") {
  struct Case {
    std::vector<Frame> frames;
    std::string why;
  };
  const std::vector<Case> cases{
      {{{.kind = kReady}}, "it is no Lockstep of this version"},
      {{{.kind = kStart, .slot = 1}}, "has another order of bytes"},
      {{kStarts, kStarts}, "it is no Lockstep of this version"},
      {{kStarts, {.kind = 77}}, "a frame of an unknown kind"},
      {{kStarts, {.kind = kReady, .bytes = 5}}, "a frame of a wrong size"},
      {{kStarts, {.kind = kSmall}}, "a frame of a wrong size"},
      {{kStarts, {.kind = kSmall, .bytes = 65537, .whole = 65537}},
       "a small message of a wrong size"},
      {{kStarts, {.kind = kSmall, .bytes = 5, .whole = 6}}, "a small message of a wrong size"},
      {{kStarts, {.kind = kReady, .whole = 65536, .id = 1}}, "a message of no size"},
      {{kStarts, {.kind = kReady, .whole = 65537}}, "a message of no size"},
      {{kStarts, {.kind = kPart, .bytes = (1U << 20) + 1, .id = 1}}, "a part that is too large"},
      {{kStarts, {.kind = kPart, .bytes = 1, .id = 1000}}, "a part that nobody awaits"},
      {{kStarts, {.kind = kPart, .bytes = 1}}, "a part that nobody awaits"},
      {{kStarts, {.kind = kPart, .bytes = 100'001, .id = 1}}, "more than was expected"},
      {{kStarts, {.kind = kGoodbye}}, "it has ended"},
  };
  for (const Case& each : cases) {
    INFO(each.why);
    const auto store = std::make_shared<comm::MemoryStore>();
    const auto group = comm::connect_tcp(store, 0, 2, network());
    auto waits = in_background(
        [&] { return message_of<ReplicaLost>([&] { (void)receive_from(*group, 1, 25'000); }); });
    // The group's own try to connect finds no address. Its second frame shows that it has posted.
    Descriptor peer = bad_peer_of(HostAndPort::parse(store->get("address/0", kLongEnough)));
    if (each.frames[0].kind == kStart && each.frames[0].slot == kStarts.slot) {
      say(peer, &kStarts, sizeof kStarts);
      std::array<Frame, 2> got{};
      REQUIRE(::recv(peer.get(), got.data(), sizeof got, MSG_WAITALL) == sizeof got);
      say(peer, each.frames.data() + 1, (each.frames.size() - 1) * sizeof(Frame));
    } else {
      say(peer, each.frames.data(), each.frames.size() * sizeof(Frame));
    }
    CHECK_THAT(waits.get(), ContainsSubstring("replica 0 lost its connection to replica 1 (") &&
                                ContainsSubstring(each.why));
  }
}

TEST_CASE("random frames of a peer harm nobody else", "[tcp][failure]") {
  std::cout << "frames: LOCKSTEP_SEED=" << testing::seed() << std::endl;
  for (int i = 0; i < 60; ++i) {
    const Key key = Key(testing::seed()).fold("frames").fold(i);
    std::mt19937_64 random(key.bits());
    const auto store = std::make_shared<comm::MemoryStore>();
    const auto group = comm::connect_tcp(store, 0, 2, network());
    auto receives = in_background(
        [&] { return message_of<ReplicaLost>([&] { (void)receive_from(*group, 1, 25'000); }); });
    Descriptor peer = bad_peer_of(HostAndPort::parse(store->get("address/0", kLongEnough)));
    say(peer, &kStarts, sizeof kStarts);
    for (int f = 0; f < 40; ++f) {
      const auto some = [&](std::uint64_t most) { return random() % most; };
      Frame frame{.kind = static_cast<std::uint32_t>(1 + some(4)),
                  .slot = some(3),
                  .whole = some(2) == 0 ? 100'000 : 65'537 + some(1000),
                  .id = 1 + some(3),
                  .group = some(3)};
      if (frame.kind == kSmall)
        frame.whole = frame.bytes = static_cast<std::uint32_t>(1 + some(65536));
      if (frame.kind == kPart) frame.bytes = static_cast<std::uint32_t>(1 + some(9000));
      say(peer, &frame, sizeof frame);
      const std::string payload(frame.bytes, 'x');
      if (some(10) > 0) say(peer, payload.data(), payload.size());
    }
    peer.close();
    CHECK(receives.get() != "an error of another type");
  }
}

TEST_CASE("strangers disturb neither connecting nor what runs", "[tcp]") {
  std::cout << "strangers: LOCKSTEP_SEED=" << testing::seed() << std::endl;
  constexpr int kAtOnce = 200;
  constexpr int kLater = 1000;
  Replicas replicas(3);
  const Key key = Key(testing::seed()).fold("tcp strangers");
  std::vector<Descriptor> stay;
  const auto come = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      Descriptor stranger = stranger_of(replicas.address_of(i % 3));
      const std::string text = noise(key.fold(i));
      say(stranger, text.data(), text.size());
      if (i % 5 == 0) stay.push_back(std::move(stranger));
    }
  };
  come(0, kAtOnce);
  std::atomic<bool> is_over{false};
  std::vector<std::future<void>> all;
  std::atomic<int> sums{0};
  for (std::size_t rank = 0; rank < 3; ++rank) {
    all.push_back(in_background([&, rank] {
      Words more{0};
      while (more[0] == 0) {
        for (const std::size_t count : {10, 100'003}) {
          const Words mine = values_of(static_cast<int>(rank), count);
          expect(same(summed(replicas[rank], mine), sum_of(everyone(3), count)), "the sum");
          ++sums;
        }
        more = summed(replicas[rank], {rank == 0 && is_over ? 1.0F : 0.0F});
      }
    }));
  }
  come(kAtOnce, kLater);
  // One peer knows the secret and is none of the replicas, and another one says nothing more.
  const auto link = comm::connect(replicas.address_of(0), network().secret, kLongEnough);
  const auto silent = comm::connect(replicas.address_of(0), network().secret, kLongEnough);
  link->send("replica 1 of 2");
  std::optional<std::string> answer;
  while (!answer && link->is_open()) {
    link->progress();
    answer = link->receive();
  }
  CHECK_THAT(answer.value_or(""),
             ContainsSubstring("it is replica 0 of 3, and this is replica 1 of 2"));
  is_over = true;
  for (auto& each : all) CHECK_NOTHROW(each.get());
  CHECK(sums > 0);
  for (const auto& each : replicas.all) CHECK(each->ledger().connections == 2);
}

TEST_CASE("another secret or job is told", "[tcp][failure]") {
  const auto store = std::make_shared<comm::MemoryStore>();
  const auto first = comm::connect_tcp(store, 0, 2, network());
  comm::NetworkOptions other = network();
  std::string why = "has another secret";
  SECTION("secret") {
    other.secret = comm::Secret({std::byte{9}});
  }
  SECTION("job") {
    other.job = {std::byte{9}};
    why = "is of another job";
  }
  const auto second = comm::connect_tcp(store, 1, 2, other);
  CHECK_THAT(
      message_of<CommError>([&] { second->barrier(); }),
      ContainsSubstring("replica 1 cannot connect to replica 0: ") && ContainsSubstring(why));
}

TEST_CASE("a replica that does not come or call is a Timeout that names it", "[tcp][failure]") {
  comm::ConnectOptions options;
  options.timeout = 200ms;
  for (const std::size_t count : {std::size_t{10}, kMillion}) {
    for (const std::size_t who : {0U, 1U}) {
      Replicas replicas(2, options);
      CHECK(message_of<Timeout>([&] {
              (void)receive_from(replicas[who], static_cast<int>(1 - who), count);
            }) == str("replica ", who, " waited 200 ms to receive from replica ", 1 - who,
                      ", which did not arrive"));
    }
  }
  Replicas replicas(2, options);
  CHECK(message_of<Timeout>([&] { send_to(replicas[0], 1, Words(kMillion)); }) ==
        "replica 0 waited 200 ms to send to replica 1, which did not arrive");
  options.timeout = 50ms;
  options.connect_timeout = 300ms;
  const auto alone =
      comm::connect_tcp(std::make_shared<comm::MemoryStore>(), 0, 2, network(), options);
  CHECK(message_of<Timeout>([&] { alone->barrier(); }) ==
        "replica 0 could not connect to replica 1 within 300 ms: it has not published its address");
}

TEST_CASE("a verb can be interrupted while a replica has not come", "[tcp][failure]") {
  const auto alone = comm::connect_tcp(std::make_shared<comm::MemoryStore>(), 0, 2, network());
  auto waits =
      in_background([&] { return message_of<Error>([&] { (void)receive_from(*alone, 1, 5); }); });
  while (alone->ledger().rounds == 0) std::this_thread::yield();
  alone->interrupt(std::make_exception_ptr(Error("enough")));
  CHECK(waits.get() == "enough");
}

TEST_CASE("over TCP an address that is not this machine's is refused", "[tcp][failure]") {
  comm::NetworkOptions elsewhere = network();
  elsewhere.address = "203.0.113.7";
  CHECK_THAT(message_of<CommError>([&] {
               (void)comm::connect_tcp(std::make_shared<comm::MemoryStore>(), 0, 2, elsewhere);
             }),
             ContainsSubstring("cannot listen on 203.0.113.7"));
}
