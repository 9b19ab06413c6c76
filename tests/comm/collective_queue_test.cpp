#include "framework/comm/collective_queue.h"

#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/comm/replicas.h"
#include "tests/comm/words.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using Progress = CollectiveQueue::Progress;
using Handle = CollectiveQueue::Handle;

constexpr std::uint64_t kChannel = 7;

std::shared_ptr<Communicator> own_channel(Communicator& group) {
  return group.subgroup(everyone(group.size()), kChannel);
}

Verb all_reduce(ConstBytes input, Bytes output) {
  return {
      .kind = Verb::Kind::all_reduce, .input = input, .output = output, .type = kFloat, .op = kSum};
}

// Every verb, several of each under way, while the group itself is used as well.
void check_all(Communicator& group, Progress progress) {
  const auto me = static_cast<std::size_t>(group.rank());
  const auto n = static_cast<std::size_t>(group.size());
  CollectiveQueue queue(own_channel(group), progress);
  for (const std::size_t count : {0, 1, 4099, 70001}) {
    const Words mine = values_of(group.rank(), count);
    const Words parts = values_of(group.rank(), count * n, 5);
    const Words sum = sum_of(everyone(group.size()), count);
    const Words sums = sum_of(everyone(group.size()), count * n, 5);
    std::vector<Words> reduced(3, Words(count));
    Words own(count);
    Words gathered(count * n);
    Words exchanged(count * n);
    Words shifted(count);
    Words copied = mine;
    const std::vector<std::size_t> sizes(n, count * sizeof(float));
    std::vector<Handle> handles;
    for (Words& output : reduced) {
      handles.push_back(queue.start(all_reduce(bytes(mine), bytes(output))));
    }
    handles.push_back(queue.start({.kind = Verb::Kind::reduce_scatter,
                                   .input = bytes(parts),
                                   .output = bytes(own),
                                   .type = kFloat,
                                   .op = kSum}));
    // Of what is there by then.
    handles.push_back(queue.start(
        {.kind = Verb::Kind::all_gather, .input = bytes(own), .output = bytes(gathered)}));
    handles.push_back(queue.start({.kind = Verb::Kind::all_to_all,
                                   .input = bytes(parts),
                                   .output = bytes(exchanged),
                                   .send_sizes = sizes,
                                   .recv_sizes = sizes}));
    const int next = (group.rank() + 1) % group.size();
    const int before = (group.rank() + group.size() - 1) % group.size();
    handles.push_back(queue.start({.kind = Verb::Kind::permute,
                                   .input = bytes(mine),
                                   .output = bytes(shifted),
                                   .destination = next,
                                   .source = before}));
    handles.push_back(queue.start(
        {.kind = Verb::Kind::broadcast, .output = bytes(copied), .source = group.size() - 1}));
    Words beside(count);
    group.all_reduce(bytes(mine), bytes(beside), kFloat, kSum);
    expect(same(beside, sum), "all_reduce of the group, beside the queue");
    Handle last = queue.start({.kind = Verb::Kind::barrier});
    last.wait();
    for (Handle& handle : handles) {
      expect(handle.done(), "all that were started before the last have ended");
      handle.wait();
    }
    for (const Words& output : reduced) expect(same(output, sum), "all_reduce");
    expect(same(own, slice(sums, me * count, count)), "reduce_scatter");
    expect(same(gathered, sums), "all_gather");
    for (std::size_t p = 0; p < n; ++p) {
      const Words theirs = values_of(static_cast<int>(p), count * n, 5);
      expect(same(slice(exchanged, p * count, count), slice(theirs, me * count, count)),
             "all_to_all");
    }
    expect(same(shifted, values_of(before, count)), "permute");
    expect(same(copied, values_of(group.size() - 1, count)), "broadcast");
  }
}

template <typename E>
void expect_failure(Handle& handle, const std::string& part) {
  for (int again = 0; again < 2; ++again) {
    try {
      handle.wait();
    } catch (const E& error) {
      expect(std::string(error.what()).find(part) != std::string::npos, error.what());
      continue;
    }
    throw std::runtime_error("the handle did not fail");
  }
}

Progress any_progress() {
  return GENERATE(Progress::thread, Progress::caller, Progress::automatic);
}

}  // namespace

TEST_CASE("started verbs agree with one replica's own computation", "[queue]") {
  const Backend backend = GENERATE(Backend::gloo, Backend::shared);
  const Progress progress = any_progress();
  INFO(name_of(backend) << ", progress " << static_cast<int>(progress));
  const auto body = [&](Communicator& group) { check_all(group, progress); };
  for (const int replicas : {1, 2, 3, 5}) {
    CHECK_NOTHROW(in_threads(backend, replicas, body));
    CHECK_NOTHROW(in_processes(backend, replicas, body));
  }
}

TEST_CASE("with a thread verbs end while nobody waits", "[queue]") {
  CHECK_NOTHROW(in_threads(Backend::shared, 2, [](Communicator& group) {
    CollectiveQueue queue(own_channel(group), Progress::thread);
    Words words(70001, 1);
    const Handle handle = queue.start(all_reduce(bytes(words), bytes(words)));
    while (!handle.done()) ::usleep(100);
    expect(words[70000] == 2, "the sum is there");
  }));
}

TEST_CASE("a ValueError is its own verb's alone", "[queue]") {
  const Progress progress = any_progress();
  CHECK_NOTHROW(in_threads(Backend::shared, 2, [&](Communicator& group) {
    CollectiveQueue queue(own_channel(group), progress);
    Words a(4, 1);
    Words b(5);
    Handle wrong = queue.start(all_reduce(bytes(a), bytes(b)));
    Handle right = queue.start(all_reduce(bytes(a), bytes(a)));
    right.wait();
    expect(a[0] == 2, "the sum");
    expect_failure<ValueError>(wrong, "input has 16 bytes, output 20");
  }));
}

TEST_CASE("every failure completes every handle with its error", "[failure]") {
  const Backend backend = GENERATE(Backend::gloo, Backend::shared);
  const Progress progress = any_progress();
  INFO(name_of(backend) << ", progress " << static_cast<int>(progress));
  Words words(2000000);
  const auto start_three = [&](CollectiveQueue& queue, std::vector<Words>& buffers) {
    std::vector<Handle> handles;
    for (Words& buffer : buffers) {
      handles.push_back(queue.start(all_reduce(bytes(buffer), bytes(buffer))));
    }
    return handles;
  };

  // A process that dies: the others throw what each handle says.
  CHECK_NOTHROW([&] {
    try {
      in_processes(backend, 3, [&](Communicator& group) {
        std::vector<Words> buffers(3, Words(1000000));
        CollectiveQueue queue(own_channel(group), progress);
        if (group.rank() == 1) ::_exit(0);
        auto handles = start_three(queue, buffers);
        for (Handle& handle : handles) expect_failure<ReplicaLost>(handle, "lost");
        Handle later = queue.start({.kind = Verb::Kind::barrier});
        expect(later.done(), "nothing starts after a failure");
        expect_failure<ReplicaLost>(later, "lost");
        throw std::runtime_error("all handles have failed");
      });
    } catch (const std::runtime_error& error) {
      const std::string text = error.what();
      if (text.find("all handles have failed") == std::string::npos) throw;
    }
  }());

  // abort(), and a queue that goes while its verbs are under way.
  CHECK_NOTHROW(in_threads(backend, 2, [&](Communicator& group) {
    std::vector<Words> buffers(3, Words(1000));
    const auto own = own_channel(group);
    std::vector<Handle> handles;
    {
      CollectiveQueue queue(own, progress);
      if (group.rank() == 0) handles = start_three(queue, buffers);
    }
    for (Handle& handle : handles)
      expect_failure<Aborted>(handle, "the queue of collectives was closed");
    const auto other = group.subgroup(everyone(2), kChannel + 1);
    CollectiveQueue queue(other, progress);
    handles = group.rank() == 0 ? start_three(queue, buffers) : std::vector<Handle>();
    group.barrier();
    group.abort("enough");
    for (Handle& handle : handles) expect_failure<Aborted>(handle, "enough");
  }));
}
