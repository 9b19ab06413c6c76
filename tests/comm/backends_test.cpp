#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/element_type.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/comm/communicator.h"
#include "framework/comm/shared/host_memory.h"
#include "framework/reduce/reduce.h"
#include "tests/catch.h"
#include "tests/comm/replicas.h"
#include "tests/comm/words.h"
#include "tests/reduce/reductions.h"
#include "tests/support/settings.h"

// Gloo, TCP, shared memory and several hosts give the same bytes as one replica that computes
// alone.

using namespace lockstep;
using testing::Backend;
using testing::expect;
using testing::in_processes;
using testing::in_threads;
using testing::is_allowed;
using testing::kOps;
using testing::kTypes;
using testing::same;

namespace {

using Buffer = std::vector<std::byte>;

constexpr int kReplicas[] = {1, 2, 3, 4, 5, 6, 8, 9};
constexpr int kReplicasAsProcesses[] = {2, 3, 5, 9};
// A message that fills all of a replica's chunks, and a part of one once more.
constexpr std::size_t kLarge = comm::HostMemory::kChunks * comm::HostMemory::kChunkBytes +
                               comm::HostMemory::kChunkBytes / 3 + 1;

// Returns random bits for each replica.
std::vector<Buffer> random_inputs(int replicas) {
  std::vector<Buffer> inputs;
  for (int rank = 0; rank < replicas; ++rank) {
    const Key key = Key(testing::seed()).fold("backends").fold(static_cast<std::uint64_t>(rank));
    std::mt19937_64 random(key.bits());
    std::vector<std::uint64_t> words(kLarge / sizeof(std::uint64_t) + 64);
    std::ranges::generate(words, random);
    const auto bytes = std::as_bytes(std::span(words));
    inputs.emplace_back(bytes.begin(), bytes.end());
  }
  return inputs;
}

// A reduction of the inputs' first elements, and the result of one replica alone.
struct Reduction {
  ElementType type;
  ReduceOp op;
  Buffer expected;

  [[nodiscard]] std::string text() const {
    return str(" of ", expected.size() / size_of(type), " ", name_of(type), ", ", name_of(op));
  }
};

struct Reductions {
  std::vector<Buffer> inputs;    // of each replica
  std::vector<Buffer> booleans;  // the same as zeros and ones
  std::vector<Reduction> all;

  [[nodiscard]] const std::vector<Buffer>& inputs_of(ElementType type) const {
    return type == ElementType::boolean ? booleans : inputs;
  }

  void add(ElementType type, ReduceOp op, std::size_t count) {
    std::vector<const std::byte*> pointers;
    for (const Buffer& input : inputs_of(type)) pointers.push_back(input.data());
    Buffer expected(count * size_of(type));
    reduce::reduce(pointers, expected, type, op);
    all.push_back({type, op, std::move(expected)});
  }
};

// Returns all allowed reductions, of few elements and of many that still go in one round, and for
// each type one, by the number of replicas, of so many that they go through several rounds.
Reductions reductions(int replicas) {
  Reductions reductions{random_inputs(replicas), random_inputs(replicas), {}};
  for (Buffer& input : reductions.booleans) {
    for (std::byte& byte : input) byte &= std::byte{1};
  }
  for (const ElementType type : kTypes) {
    std::vector<ReduceOp> allowed;
    std::ranges::copy_if(kOps, std::back_inserter(allowed),
                         [&](ReduceOp op) { return is_allowed(type, op); });
    for (const ReduceOp op : allowed) {
      reductions.add(type, op, 5);
      reductions.add(type, op, 1001);
    }
    const ReduceOp turn = allowed[static_cast<std::size_t>(replicas) % allowed.size()];
    reductions.add(type, turn, kLarge / size_of(type));
  }
  return reductions;
}

void check_reduction_of(comm::Communicator& group, const Reductions& of,
                        const Reduction& reduction) {
  const auto me = static_cast<std::size_t>(group.rank());
  const auto input = std::span(of.inputs_of(reduction.type)[me]).first(reduction.expected.size());
  Buffer output(input.size());
  group.all_reduce(input, output, reduction.type, reduction.op);
  expect(same(output, reduction.expected), "all_reduce" + reduction.text());

  const std::size_t width = size_of(reduction.type);
  const std::size_t slice = input.size() / width / static_cast<std::size_t>(group.size()) * width;
  output.assign(slice, std::byte{0xaa});
  group.reduce_scatter(input.first(slice * static_cast<std::size_t>(group.size())), output,
                       reduction.type, reduction.op);
  expect(same(output, std::span(reduction.expected).subspan(me * slice, slice)),
         "reduce_scatter" + reduction.text());
}

// Returns the bytes that `from` sends to `to` in an all_to_all of about `bytes`; some get nothing.
std::size_t size_between(std::size_t from, std::size_t to, std::size_t bytes, std::size_t count) {
  return (from + 2 * to) % 4 == 3 ? 0 : bytes / count + (5 * from + 3 * to) % 7;
}

void check_moves(comm::Communicator& group, const std::vector<Buffer>& inputs, std::size_t bytes) {
  const auto n = static_cast<std::size_t>(group.size());
  const auto me = static_cast<std::size_t>(group.rank());
  const auto sent = [&](std::size_t from) { return std::span(inputs[from]).first(bytes); };

  Buffer gathered(n * bytes);
  group.all_gather(sent(me), gathered);
  for (std::size_t p = 0; p < n; ++p) {
    expect(same(std::span(gathered).subspan(p * bytes, bytes), sent(p)),
           str("all_gather of ", bytes));
  }

  std::vector<std::size_t> send_sizes;
  std::vector<std::size_t> recv_sizes;
  Buffer expected;
  std::size_t total = 0;
  for (std::size_t p = 0; p < n; ++p) {
    send_sizes.push_back(size_between(me, p, bytes, n));
    recv_sizes.push_back(size_between(p, me, bytes, n));
    total += send_sizes.back();
    std::size_t offset = 0;
    for (std::size_t before = 0; before < me; ++before) offset += size_between(p, before, bytes, n);
    const auto part = std::span(inputs[p]).subspan(offset, recv_sizes.back());
    expected.insert(expected.end(), part.begin(), part.end());
  }
  Buffer received(expected.size());
  group.all_to_all(std::span(inputs[me]).first(total), send_sizes, received, recv_sizes);
  expect(same(received, expected), str("all_to_all of ", bytes));

  const auto next = static_cast<int>((me + 1) % n);
  const std::size_t before = (me + n - 1) % n;
  Buffer shifted(bytes);
  group.permute(sent(me), next, shifted, static_cast<int>(before));
  expect(same(shifted, sent(before)), str("permute of ", bytes));

  const std::size_t root = n / 2;
  Buffer copied(sent(me).begin(), sent(me).end());
  group.broadcast(copied, static_cast<int>(root));
  expect(same(copied, sent(root)), str("broadcast of ", bytes));
}

// Checks each number of replicas, over each backend, in threads and in processes.
template <typename Prepare>
void check_everywhere(const char* sweep, const Prepare& prepare) {
  std::cout << "backends: LOCKSTEP_SEED=" << testing::seed() << std::endl;
  testing::Sample sample(sweep);
  for (const int replicas : kReplicas) {
    const auto body = prepare(replicas);
    for (const Backend backend : {Backend::gloo, Backend::tcp, Backend::shared, Backend::hosts}) {
      INFO(replicas << " replicas, " << name_of(backend));
      if (sample.next()) CHECK_NOTHROW(in_threads(backend, replicas, body));
      if (std::ranges::count(kReplicasAsProcesses, replicas) > 0 && sample.next()) {
        CHECK_NOTHROW(in_processes(backend, replicas, body));
      }
    }
  }
}

}  // namespace

TEST_CASE("every reduction has the same bits over each backend as alone", "[communicator][slow]") {
  check_everywhere("reductions", [](int replicas) {
    return [of = reductions(replicas)](comm::Communicator& group) {
      for (const Reduction& reduction : of.all) check_reduction_of(group, of, reduction);
    };
  });
}

TEST_CASE("every byte that is moved is the same over each backend", "[communicator]") {
  check_everywhere("moves", [](int replicas) {
    return [inputs = random_inputs(replicas)](comm::Communicator& group) {
      for (const std::size_t bytes :
           {std::size_t{1}, std::size_t{1003}, comm::HostMemory::kSmallBytes + 1, kLarge}) {
        check_moves(group, inputs, bytes);
      }
    };
  });
}

// At these speeds messages, rounds or bytes cost nothing or more than all else, so that each kind
// of schedule is the cheapest at one.
TEST_CASE("the bits do not depend on how fast the links are", "[communicator][tcp][slow]") {
  const std::vector<comm::LinkSpeed> speeds{{0, 1e15}, {0, 1e5}, {1, 1e15}, {1, 1e5}, {0, 1e9}};
  testing::Sample sample("links");
  for (const int replicas : {2, 3, 4, 5, 6, 7, 8, 9, 13}) {
    const auto of = reductions(replicas);
    for (const comm::LinkSpeed& speed : speeds) {
      INFO(replicas << " replicas, " << speed.latency << " s, " << speed.bytes_per_second
                    << " B/s");
      if (!sample.next()) continue;
      CHECK_NOTHROW(in_threads(Backend::tcp, replicas, [&](comm::Communicator& group) {
        group.set_link_speed(speed);
        for (const Reduction& reduction : of.all) check_reduction_of(group, of, reduction);
        for (const std::size_t bytes : {std::size_t{1}, std::size_t{1003}, kLarge}) {
          check_moves(group, of.inputs, bytes);
        }
        group.barrier();
      }));
    }
  }
}
