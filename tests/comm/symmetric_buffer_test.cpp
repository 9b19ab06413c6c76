#include "framework/comm/symmetric_buffer.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/comm/communicator.h"
#include "tests/catch.h"
#include "tests/comm/replicas.h"
#include "tests/comm/words.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr auto kFloat = ElementType::float32;
constexpr auto kSum = ReduceOp::sum;
constexpr std::size_t kPad = 64;  // floats

// Floats of one symmetric buffer.
class Symmetric {
 public:
  Symmetric(Communicator& group, std::size_t count, Copies copies = Copies::each)
      : buffer_(group.allocate(count * sizeof(float), copies)) {}

  std::span<float> floats(std::size_t offset, std::size_t count) const {
    return std::span(reinterpret_cast<float*>(buffer_->own().data()),
                     buffer_->own().size() / sizeof(float))
        .subspan(offset, count);
  }
  std::span<float> fill(const Words& words, std::size_t offset = 0) const {
    const auto to = floats(offset, words.size());
    std::copy(words.begin(), words.end(), to.begin());
    return to;
  }
  bool is_common() const { return buffer_->is_common(); }

 private:
  std::shared_ptr<SymmetricBuffer> buffer_;
};

std::span<std::byte> raw(std::span<float> floats) {
  return std::as_writable_bytes(floats);
}

// Buffers here and there, and parts that begin elsewhere on every replica.
void check_reductions(Communicator& group, std::size_t count) {
  const auto me = static_cast<std::size_t>(group.rank());
  const auto n = static_cast<std::size_t>(group.size());
  const Words mine = values_of(group.rank(), count);
  const Words sum = sum_of(everyone(group.size()), count);
  const Symmetric a(group, count + n * kPad);
  const Symmetric b(group, count + n * kPad);
  expect(same(a.floats(0, count), Words(count)), "zeros at first");

  const auto x = a.fill(mine, me * kPad);
  const auto y = b.floats((n - 1 - me) * kPad, count);
  group.all_reduce(raw(x), raw(y), kFloat, kSum);
  expect(same(y, sum), str("all_reduce from buffer to buffer of ", count));
  expect(same(x, mine), "the input stays");
  Words ordinary(count);
  group.all_reduce(raw(x), bytes(ordinary), kFloat, kSum);
  expect(same(ordinary, sum), str("all_reduce to ordinary memory of ", count));
  group.all_reduce(raw(x), raw(x), kFloat, kSum);
  expect(same(x, sum), str("all_reduce in place of ", count));
  group.all_reduce(bytes(mine), raw(y), kFloat, kSum);
  expect(same(y, sum), str("all_reduce from ordinary memory of ", count));
  // Where buffers differ in kind, the group takes another way, but all the same one.
  Words elsewhere = mine;
  group.all_reduce(me == 0 ? bytes(elsewhere) : raw(a.fill(mine)), bytes(ordinary), kFloat, kSum);
  expect(same(ordinary, sum), str("all_reduce of one ordinary and other inputs of ", count));

  const Symmetric whole(group, count * n);
  const Words all = values_of(group.rank(), count * n, 5);
  const Words sums = sum_of(everyone(group.size()), count * n, 5);
  group.reduce_scatter(raw(whole.fill(all)), bytes(ordinary), kFloat, kSum);
  expect(same(ordinary, slice(sums, me * count, count)), str("reduce_scatter of ", count));
  const auto own = whole.floats(me * count, count);
  group.reduce_scatter(raw(whole.floats(0, count * n)), raw(own), kFloat, kSum);
  expect(same(own, slice(sums, me * count, count)), str("reduce_scatter in place of ", count));
  group.all_gather(raw(own), raw(whole.floats(0, count * n)));
  expect(same(whole.floats(0, count * n), sums), str("all_gather in place of ", count));
  Words gathered(count * n);
  group.all_gather(raw(a.fill(mine)), bytes(gathered));
  for (std::size_t p = 0; p < n; ++p) {
    expect(same(slice(gathered, p * count, count), values_of(static_cast<int>(p), count)),
           str("all_gather to ordinary memory of ", count));
  }
}

void check_moves(Communicator& group, std::size_t count) {
  const auto me = static_cast<std::size_t>(group.rank());
  const auto n = static_cast<std::size_t>(group.size());
  const Symmetric from(group, count * n);
  const Symmetric to(group, count * n);
  from.fill(values_of(group.rank(), count * n));
  const std::vector<std::size_t> sizes(n, count * sizeof(float));
  group.all_to_all(raw(from.floats(0, count * n)), sizes, raw(to.floats(0, count * n)), sizes);
  for (std::size_t p = 0; p < n; ++p) {
    const Words theirs = values_of(static_cast<int>(p), count * n);
    expect(same(to.floats(p * count, count), slice(theirs, me * count, count)),
           str("all_to_all of ", count));
  }
  const int next = (group.rank() + 1) % group.size();
  const int before = (group.rank() + group.size() - 1) % group.size();
  group.permute(raw(from.floats(0, count)), next, raw(to.floats(0, count)), before);
  expect(same(to.floats(0, count), slice(values_of(before, count * n), 0, count)),
         str("permute of ", count));
  group.broadcast(raw(from.floats(0, count)), group.size() - 1);
  expect(same(from.floats(0, count), slice(values_of(group.size() - 1, count * n), 0, count)),
         str("broadcast of ", count));
}

// One copy for all: what a replica may write is its part, between barriers.
void check_common(Communicator& group, std::size_t count) {
  const auto me = static_cast<std::size_t>(group.rank());
  const auto n = static_cast<std::size_t>(group.size());
  const Words mine = values_of(group.rank(), count);
  const Words sum = sum_of(everyone(group.size()), count);
  const Symmetric common(group, count * n, Copies::one);
  const Symmetric input(group, count);
  Words all;
  for (int p = 0; p < group.size(); ++p) {
    const Words theirs = values_of(p, count);
    all.insert(all.end(), theirs.begin(), theirs.end());
  }

  common.fill(mine, me * count);
  group.all_gather(raw(common.floats(me * count, count)), raw(common.floats(0, count * n)));
  expect(same(common.floats(0, count * n), all), str("all_gather in a common buffer of ", count));
  group.barrier();
  group.all_gather(bytes(mine), raw(common.floats(0, count * n)));
  expect(same(common.floats(0, count * n), all), str("all_gather to a common buffer of ", count));
  group.all_reduce(bytes(mine), raw(common.floats(0, count)), kFloat, kSum);
  expect(same(common.floats(0, count), sum), str("all_reduce to a common buffer of ", count));
  group.barrier();
  group.all_reduce(raw(input.fill(mine)), raw(common.floats(0, count)), kFloat, kSum);
  expect(same(common.floats(0, count), sum), str("all_reduce between buffers of ", count));
  group.broadcast(raw(common.floats(0, count)), 0);
  expect(same(common.floats(0, count), sum), str("broadcast of a common buffer of ", count));
}

void check_all(Communicator& group) {
  for (const std::size_t count : {0, 1, 17, 4096, 4099, 70001}) {
    check_reductions(group, count);
    check_moves(group, count);
    check_common(group, count);
  }
}

}  // namespace

TEST_CASE("verbs on symmetric buffers agree with one replica's own computation", "[symmetric]") {
  const Backend backend = GENERATE(Backend::gloo, Backend::shared);
  INFO(name_of(backend));
  for (const int replicas : {1, 2, 3, 4, 5, 8}) {
    INFO(replicas << " replicas");
    CHECK_NOTHROW(in_threads(backend, replicas, check_all));
    CHECK_NOTHROW(in_processes(backend, replicas, check_all));
  }
}

TEST_CASE("what replicas of a host share is one memory, or symmetric copies of it", "[symmetric]") {
  for (const Copies copies : {Copies::each, Copies::one}) {
    const auto body = [&](Communicator& group) {
      const Symmetric buffer(group, 1000, copies);
      expect(buffer.is_common() == (copies == Copies::one), "is_common()");
      if (group.rank() == 1) buffer.floats(0, 1)[0] = 7;
      group.barrier();
      const bool sees_it = buffer.floats(0, 1)[0] == 7;
      expect(sees_it == (group.rank() == 1 || copies == Copies::one), "who sees what 1 wrote");
    };
    CHECK_NOTHROW(in_threads(Backend::shared, 3, body));
    CHECK_NOTHROW(in_processes(Backend::shared, 3, body));
  }
  CHECK_NOTHROW(in_threads(Backend::gloo, 2, [](Communicator& group) {
    expect(!Symmetric(group, 10, Copies::one).is_common(), "over Gloo each has its own");
  }));
}

TEST_CASE("a subgroup uses the buffers that the whole group has allocated", "[symmetric]") {
  const auto body = [](Communicator& world) {
    constexpr std::size_t kCount = 70001;
    const Symmetric buffer(world, kCount);
    const std::vector<int> members =
        world.rank() % 2 == 0 ? std::vector<int>{4, 0, 2} : std::vector<int>{1, 3};
    const auto group = world.subgroup(members);
    for (int repetition = 0; repetition < 3; ++repetition) {
      const auto x = buffer.fill(values_of(world.rank(), kCount));
      group->all_reduce(raw(x), raw(x), kFloat, kSum);
      expect(same(x, sum_of(members, kCount)), "the subgroup's sum");
    }
    world.barrier();
  };
  CHECK_NOTHROW(in_threads(Backend::shared, 5, body));
  CHECK_NOTHROW(in_processes(Backend::shared, 5, body));
}

TEST_CASE("more than the host has is an error with the numbers, on all replicas", "[symmetric]") {
  const auto body = [](Communicator& group) {
    const auto refused = [&](std::size_t bytes) {
      try {
        (void)group.allocate(bytes);
      } catch (const CommError& error) {
        return std::string(error.what());
      }
      throw std::runtime_error("it was allocated");
    };
    const std::string text = refused(std::size_t{1} << 45);
    expect(text.find("would share 70368744177664 bytes; it has ") != std::string::npos, text);
    group.barrier();  // and the group still works
    (void)group.allocate(100);
  };
  CHECK_NOTHROW(in_threads(Backend::shared, 2, body));
  CHECK_NOTHROW(in_processes(Backend::shared, 2, body));
}
