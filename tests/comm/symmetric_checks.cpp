#include "tests/comm/symmetric_checks.h"

#include <vector>

#include "framework/base/text.h"

namespace lockstep::testing {
namespace {

constexpr std::size_t kPad = 64;  // floats

// Checks reductions on buffers here and there, and on parts that begin elsewhere on every replica.
void check_reductions(comm::Communicator& group, std::size_t count) {
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
  // If buffers differ in kind, the group takes another way, but all replicas the same one.
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

void check_moves(comm::Communicator& group, std::size_t count) {
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

// Checks one copy for all: a replica writes only its part, between barriers.
void check_common(comm::Communicator& group, std::size_t count) {
  const auto me = static_cast<std::size_t>(group.rank());
  const auto n = static_cast<std::size_t>(group.size());
  const Words mine = values_of(group.rank(), count);
  const Words sum = sum_of(everyone(group.size()), count);
  const Symmetric common(group, count * n, comm::Copies::one);
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
  if (common.is_common()) {
    group.all_reduce(bytes(mine), raw(common.floats(0, count)), kFloat, kSum);
    expect(same(common.floats(0, count), sum), str("all_reduce to a common buffer of ", count));
    group.barrier();
    group.all_reduce(raw(input.fill(mine)), raw(common.floats(0, count)), kFloat, kSum);
    expect(same(common.floats(0, count), sum), str("all_reduce between buffers of ", count));
  }
  const Words before = slice(all, 0, count);
  group.broadcast(raw(common.floats(0, count)), 0);
  expect(same(common.floats(0, count), common.is_common() ? sum : before),
         str("broadcast of a common buffer of ", count));
}

}  // namespace

void check_symmetric(comm::Communicator& group, std::size_t count) {
  check_reductions(group, count);
  check_moves(group, count);
  check_common(group, count);
}

}  // namespace lockstep::testing
