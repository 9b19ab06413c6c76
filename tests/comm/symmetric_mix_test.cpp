#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/comm/communicator.h"
#include "tests/catch.h"
#include "tests/comm/replicas.h"
#include "tests/comm/symmetric_checks.h"
#include "tests/comm/words.h"
#include "tests/support/settings.h"

// Replicas whose buffers are of different kinds still go the same way together.

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr std::size_t kOffsets = 32;  // floats

// A replica's buffers for up to `count` floats, of each kind.
class Kinds {
 public:
  Kinds(comm::Communicator& group, std::size_t count)
      : one_(group, count + kOffsets),
        other_(group, count + kOffsets),
        common_(group, count, comm::Copies::one) {}

  std::span<float> draw(std::mt19937_64& random, std::size_t count) {
    switch (random() % 4) {
      case 0:
        return one_.floats(0, count);
      case 1:
        return one_.floats(random() % kOffsets, count);
      case 2:
        return other_.floats(random() % kOffsets, count);
      default:
        ordinary_.assign(count, 0);
        return ordinary_;
    }
  }
  std::span<float> common(std::size_t count) const { return common_.floats(0, count); }

 private:
  Symmetric one_;
  Symmetric other_;
  Symmetric common_;
  Words ordinary_;
};

void copy_to(const Words& words, std::span<float> to) {
  std::copy(words.begin(), words.end(), to.begin());
}

// Verbs in which replica p contributes values_of(p), on buffers that are drawn.
class Mixes {
 public:
  Mixes(comm::Communicator& group, std::size_t count)
      : group_(group),
        count_(count),
        n_(static_cast<std::size_t>(group.size())),
        me_(static_cast<std::size_t>(group.rank())),
        inputs_(group, count * n_),
        outputs_(group, count * n_),
        mine_(values_of(group.rank(), count)),
        parts_(values_of(group.rank(), count * n_, 5)) {}

  // `is_common`: all replicas have one output, if the verb allows this.
  void all_reduce(std::mt19937_64& random, bool is_common) {
    const auto input = inputs_.draw(random, count_);
    const auto output = is_common ? outputs_.common(count_) : outputs_.draw(random, count_);
    copy_to(mine_, input);
    group_.all_reduce(raw(input), raw(output), kFloat, kSum);
    expect(same(output, sum_of(everyone(group_.size()), count_)), "all_reduce");
  }

  void reduce_scatter(std::mt19937_64& random) {
    const auto input = inputs_.draw(random, count_ * n_);
    const auto output =
        random() % 2 == 0 ? input.subspan(me_ * count_, count_) : outputs_.draw(random, count_);
    copy_to(parts_, input);
    group_.reduce_scatter(raw(input), raw(output), kFloat, kSum);
    const Words sums = sum_of(everyone(group_.size()), count_ * n_, 5);
    expect(same(output, slice(sums, me_ * count_, count_)), "reduce_scatter");
  }

  void all_gather(std::mt19937_64& random, bool is_common) {
    const auto output =
        is_common ? outputs_.common(count_ * n_) : outputs_.draw(random, count_ * n_);
    const auto input =
        random() % 2 == 0 ? output.subspan(me_ * count_, count_) : inputs_.draw(random, count_);
    copy_to(mine_, input);
    group_.all_gather(raw(input), raw(output));
    for (std::size_t p = 0; p < n_; ++p) {
      expect(same(output.subspan(p * count_, count_), values_of(static_cast<int>(p), count_)),
             "all_gather");
    }
  }

  void all_to_all(std::mt19937_64& random) {
    const auto input = inputs_.draw(random, count_ * n_);
    const auto output = outputs_.draw(random, count_ * n_);
    copy_to(parts_, input);
    const std::vector<std::size_t> sizes(n_, count_ * sizeof(float));
    group_.all_to_all(raw(input), sizes, raw(output), sizes);
    for (std::size_t p = 0; p < n_; ++p) {
      const Words theirs = values_of(static_cast<int>(p), count_ * n_, 5);
      expect(same(output.subspan(p * count_, count_), slice(theirs, me_ * count_, count_)),
             "all_to_all");
    }
  }

  void broadcast(std::mt19937_64& random, int root) {
    const auto data = inputs_.draw(random, count_);
    copy_to(mine_, data);
    group_.broadcast(raw(data), root);
    expect(same(data, values_of(root, count_)), "broadcast");
  }

 private:
  comm::Communicator& group_;
  std::size_t count_;
  std::size_t n_;
  std::size_t me_;
  Kinds inputs_;
  Kinds outputs_;
  Words mine_;
  Words parts_;
};

void check_mixes(comm::Communicator& group, std::size_t count) {
  Mixes mixes(group, count);
  const Key key = Key(seed()).fold("mixes");
  std::mt19937_64 of_all(key.bits());
  std::mt19937_64 own(key.fold(static_cast<std::uint64_t>(group.rank())).bits());
  for (int verb = 0; verb < 40; ++verb) {
    std::mt19937_64 alike(of_all());
    std::mt19937_64& random = of_all() % 2 == 0 ? own : alike;
    const bool is_common = of_all() % 3 == 0;
    const auto root = static_cast<int>(of_all() % static_cast<std::uint64_t>(group.size()));
    switch (of_all() % 5) {
      case 0:
        mixes.all_reduce(random, is_common);
        break;
      case 1:
        mixes.reduce_scatter(random);
        break;
      case 2:
        mixes.all_gather(random, is_common);
        break;
      case 3:
        mixes.all_to_all(random);
        break;
      default:
        mixes.broadcast(random, root);
    }
    group.barrier();  // before the common output is written again
  }
}

}  // namespace

TEST_CASE("each replica may bring buffers of another kind", "[symmetric][slow]") {
  Sample sample("mixes");
  for (const int replicas : {2, 3, 5}) {
    for (const std::size_t count : {0, 3, 1000, 70001}) {
      INFO(replicas << " replicas, " << count << " floats, LOCKSTEP_SEED=" << seed());
      const auto body = [&](comm::Communicator& group) { check_mixes(group, count); };
      if (sample.next()) CHECK_NOTHROW(in_threads(Backend::shared, replicas, body));
      if (sample.next()) CHECK_NOTHROW(in_processes(Backend::shared, replicas, body));
    }
  }
}
