#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <thread>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/launch/launch.h"
#include "framework/maps/pmap.h"
#include "tests/catch.h"
#include "tests/collectives/cases.h"
#include "tests/launch/launched.h"
#include "tests/support/ended.h"
#include "tests/support/message_of.h"
#include "tests/support/occurrences.h"

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("launch: again and again in one program, and what replicas change stays theirs") {
  int changed = 0;
  const Ended ended = run_forked([&] {
    int status = 0;
    for (const std::int64_t n : {2, 3, 1}) {
      status += launch([&] { changed += 1; }, {.replicas = n});
      status += launch(meet, {.replicas = n, .mode = LaunchMode::threads});
    }
    return status + changed;
  });
  check_status(ended, 0);
}

TEST_CASE("launch: each host may take the timeout to prepare, once all have met") {
  LaunchOptions options{.replicas = 2, .timeout = std::chrono::seconds(3)};
  options.hosts.meet_timeout = std::chrono::seconds(1);
  options.hosts.allow_mixed = true;  // without the program's checksum, which takes a while
  options.hosts.prepare = [](const std::string& of_host_0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(of_host_0.empty() ? 3500 : 2000));
    return std::string("begin");
  };
  for (const Ended& ended : launched_on_hosts(meet, options, 2)) check_status(ended, 0);
}

TEST_CASE("launch: replica 0 writes as it is, lines of the others carry their index") {
  const Ended ended = launched(
      [] {
        const std::int64_t index = axis_index("data");
        for (std::int64_t turn = 0; turn < 3; ++turn) {
          meet();
          if (turn != index) continue;
          std::cout << "out of " << index << "\nand more";  // no newline at the end
          std::printf(" of %d%s", static_cast<int>(index), index == 0 ? "\n" : "");
          std::fflush(stdout);
          std::cerr << "err of " << index << "\n\nlast";
        }
      },
      {.replicas = 3, .prints = Prints::all});
  CHECK(ended.status == 0);
  auto out = lines_of(ended.out);
  std::sort(out.begin(), out.end());
  CHECK(out == std::vector<std::string>{"[replica 1] and more of 1", "[replica 1] out of 1",
                                        "[replica 2] and more of 2", "[replica 2] out of 2",
                                        "and more of 0", "out of 0"});
  CHECK_THAT(ended.err, ContainsSubstring("err of 0\n\nlast"));
  CHECK_THAT(ended.err, ContainsSubstring("[replica 1] err of 1\n[replica 1] \n"));
  CHECK_THAT(ended.err, ContainsSubstring("[replica 2] last\n"));
}

TEST_CASE("launch: much output on both streams arrives complete and in order") {
  constexpr int kLines = 3000;
  const std::string filler(300, '.');
  const Ended ended = launched(
      [&] {
        for (int line = 0; line < kLines; ++line) {
          std::cout << "o" << axis_index("data") << " " << line << " " << filler << "\n";
          std::cerr << "e" << axis_index("data") << " " << line << " " << filler << "\n";
        }
      },
      {.replicas = 3, .prints = Prints::all});
  REQUIRE(ended.status == 0);
  // Whole lines of the others stand anywhere in replica 0's text, which passes unchanged.
  const auto check = [&](std::string text, const std::string& stream) {
    for (const std::string index : {"1", "2", "0"}) {
      const std::string prefix = index == "0" ? "" : "[replica " + index + "] ";
      std::size_t at = 0;
      int found = 0;
      while (found < kLines) {
        const std::string line = str(prefix, stream, index, " ", found, " ", filler, "\n");
        at = text.find(line, at);
        if (at == std::string::npos) break;
        text.erase(at, line.size());
        ++found;
      }
      INFO(stream << index);
      CHECK(found == kLines);
    }
    return text;
  };
  CHECK(check(ended.out, "o").empty());
  CHECK(lines_of(check(ended.err, "e")).size() == 1);  // the launcher's own
}

TEST_CASE("launch: stdout has the lines of worker 0, or those of all if that is asked for") {
  constexpr int kLines = 200;
  for (const std::int64_t workers : {3, 2, 1}) {
    for (const Prints prints : {Prints::first, Prints::all}) {
      INFO(workers << " workers");
      const Ended ended = launched(
          [] {
            for (int line = 0; line < kLines; ++line) {
              meet();
              std::cout << str("line ", line, " of ", axis_index("data"), "\n");
            }
            meet();
            if (own_index() == 2) std::cout << "the end";
          },
          {.replicas = 3, .workers = workers, .prints = prints});
      CHECK(ended.status == 0);
      std::vector<std::string> expected;
      for (std::int64_t index = 0; index < 3; ++index) {
        const bool is_first = shard(3, workers, 0).end() > index;
        if (!is_first && prints == Prints::first) continue;
        const std::string prefix = is_first ? "" : str("[replica ", index, "] ");
        for (int line = 0; line < kLines; ++line) {
          expected.push_back(str(prefix, "line ", line, " of ", index));
        }
        if (index == 2) expected.push_back(prefix + "the end");
      }
      auto lines = lines_of(ended.out);
      std::ranges::sort(lines);
      std::ranges::sort(expected);
      CHECK(lines == expected);
      const std::string told = " prints, too, but stdout has what worker 0 prints alone";
      CHECK((count(ended.err, told) > 0) == (workers > 1 && prints == Prints::first));
    }
  }
}

TEST_CASE("launch: a line is out when it ends, though its replica is killed then") {
  for (const LaunchMode mode : kModes) {
    INFO(name_of(mode));
    const Ended ended = launched(
        [] {
          if (axis_index("data") == 0) {
            std::cout << "seen"
                      << "\n";
            std::printf("and %s\n", "seen");
            (void)::raise(SIGKILL);
          }
          meet();
        },
        {.replicas = 2, .mode = mode});
    CHECK(ended.out == "seen\nand seen\n");
  }
}

TEST_CASE("launch: of a line without an end is out what is flushed, or whose thread ends") {
  for (const LaunchMode mode : kModes) {
    INFO(name_of(mode));
    const Ended ended = launched(
        [] {
          if (axis_index("data") == 0) {
            std::cout << "name? " << std::flush;
            std::thread([] { std::cout << "and the town? "; }).join();
            std::thread([] {
              std::cout << "and more? " << std::flush;
              (void)::raise(SIGKILL);
            }).join();
          }
          meet();
        },
        {.replicas = 2, .mode = mode});
    CHECK(ended.out == "name? and the town? and more? ");
  }
}

TEST_CASE("launch: inside a replica it is refused") {
  for (const LaunchMode outer : kModes) {
    for (const LaunchMode inner : kModes) {
      check_launched(
          [&] {
            const std::string message =
                message_of<ValueError>([&] { (void)launch([] {}, {.mode = inner}); });
            expect(message == "launch: called inside a replica", message);
            meet();
          },
          {.replicas = 2, .mode = outer});
    }
  }
}

TEST_CASE("launch: options that make no sense are refused, with the value and the rule") {
  CHECK(refusal_of({.replicas = 0}) == "launch: replicas is 0; it must be at least 1");
  CHECK(refusal_of({.replicas = -3, .mode = LaunchMode::threads}) ==
        "launch: replicas is -3; it must be at least 1");
  CHECK(refusal_of({.replicas = 70000}) ==
        "the replicas of a host run on 1 to 65536 workers, not on 70000");
  CHECK(refusal_of({.axis_name = ""}) == "launch: axis_name must not be empty");
  CHECK(refusal_of({.threads_per_replica = -1}) ==
        "launch: threads_per_replica is -1; it must not be negative");
  CHECK(refusal_of({.timeout = std::chrono::milliseconds(0)}) ==
        "launch: timeout is 0 ms; it must be positive");
}

TEST_CASE("pmap in a launched function spans the job") {
  const auto body = [] {
    const std::int64_t member = axis_index("data");
    // Members with one replica each, with two each, and with 1, 2 and 3; again on kept connections.
    const std::int64_t counts[] = {1, 2, member + 1, 2, member + 1};
    const std::int64_t totals[] = {3, 6, 6, 6, 6};
    const std::int64_t firsts[] = {member, 2 * member, member * (member + 1) / 2, 2 * member,
                                   member * (member + 1) / 2};
    for (std::size_t i = 0; i < 5; ++i) {
      const auto f = pmap(
          [&](const Tensor& x) {
            expect(axis_size("i") == totals[i], "axis size");
            const Tensor mine = x + axis_index("i");
            return std::tuple(mine, psum(mine, "i"), mine);
          },
          {.axis_name = "i", .out_axes = {0, 0, std::nullopt}});
      const auto [own, sum, of_first] = f(at::full({counts[i], 4}, 100, at::kLong));
      const Tensor indices = at::arange(firsts[i], firsts[i] + counts[i]).unsqueeze(1);
      expect(own.equal((100 + indices).expand({counts[i], 4})), "own results");
      const std::int64_t total = totals[i] * 100 + totals[i] * (totals[i] - 1) / 2;
      expect(sum.equal(at::full({counts[i], 4}, total, at::kLong)), "psum");
      expect(of_first.equal(at::full({4}, 100, at::kLong)), "the axis' first replica");
      meet();  // the job's own axis works between maps
    }
  };
  for (const LaunchMode mode : kModes) check_launched(body, {.replicas = 3, .mode = mode});
}

TEST_CASE("pmap in a launched function: one replica's error ends the job, as the root cause") {
  for (const LaunchMode mode : kModes) {
    const Ended ended = launched(
        [] {
          const auto f = pmap(
              [](const Tensor& x) {
                if (axis_index("i") == 3) throw DataError("image 7 is damaged");
                return psum(x, "i");
              },
              {.axis_name = "i"});
          (void)f(at::ones({2}));
        },
        {.replicas = 3, .mode = mode});
    check_status(ended, 2);
    CHECK_THAT(lines_of(ended.err).back(), ContainsSubstring("replica 1"));
    CHECK_THAT(lines_of(ended.err).back(), ContainsSubstring("replica 3: image 7 is damaged"));
  }
}

TEST_CASE("pmap in a launched function: after an error that the function handles, it maps again") {
  for (const LaunchMode mode : kModes) {
    INFO(name_of(mode));
    const Ended ended = launched(
        [] {
          for (int round = 0; round < 3; ++round) {
            const auto failing = pmap(
                [] {
                  if (axis_index("map") % 2 == 0) throw DataError("handled");
                  (void)psum(at::ones({3}), "map");
                },
                {.axis_name = "map", .axis_size = 2});
            bool failed = false;
            try {
              failing();
            } catch (const DataError&) {
              failed = true;
            }
            expect(failed, "the map must fail");
            for (int again = 0; again < 2; ++again) {
              const Tensor sum = pmap([](const Tensor& x) { return psum(x, "map"); },
                                      {.axis_name = "map"})(at::ones({2}));
              expect(sum.equal(at::full({2}, 4.0)), "the map after it");
            }
          }
        },
        {.replicas = 2, .mode = mode, .timeout = std::chrono::seconds(20)});
    check_status(ended, 0);
    CHECK(ended.seconds < 15);
  }
}
