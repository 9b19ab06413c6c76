#include "framework/comm/link_speed.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/comm/communicator.h"
#include "framework/comm/host_members.h"
#include "framework/comm/schedule_choice.h"
#include "tests/catch.h"
#include "tests/comm/replicas.h"
#include "tests/comm/words.h"

using namespace lockstep;
using comm::LinkSpeed;
using testing::Backend;
using testing::expect;

TEST_CASE("the speed of a link is a text, and the other way round", "[schedule]") {
  CHECK(str(LinkSpeed{0.21e-3, 117e6}) == "0.21 ms, 117 MB/s");
  CHECK(str(LinkSpeed{5e-3, 12.5e6}) == "5 ms, 12.5 MB/s");
  CHECK(str(LinkSpeed{0, 2.3456e9}) == "0 ms, 2.35 GB/s");
  CHECK(str(LinkSpeed{1e-3, 999.4e6}) == "1 ms, 999 MB/s");
  CHECK(str(LinkSpeed{1e-3, 999.6e6}) == "1 ms, 1 GB/s");
  for (const std::string text : {"0.21 ms, 117 MB/s", "5 ms, 12.5 MB/s", "0 ms, 2.35 GB/s"}) {
    CHECK(str(LinkSpeed::parse(text)) == text);
  }
  CHECK(LinkSpeed::parse("0.05 ms, 1.2 GB/s") == LinkSpeed{0.05e-3, 1.2e9});
  for (const std::string text :
       {"", "auto", "1 ms", "1, 2", "1 ms, 0 MB/s", "-1 ms, 1 MB/s", "1 ms, 1 kB/s",
        "1 ms, 1 MB/s.", "nan ms, 1 MB/s", "1 ms, inf MB/s"}) {
    CHECK_THROWS_AS(LinkSpeed::parse(text), ValueError);
  }
}

TEST_CASE("how long links are measured follows from their speed", "[schedule]") {
  // 16 small messages go, 64 KiB and 4 times as much until one takes 32 ms, and that twice more.
  CHECK(comm::seconds_to_measure({0, 65536e3}) == Approx(1e-3 + 4e-3 + 16e-3 + 3 * 64e-3));
  CHECK(comm::seconds_to_measure({1e-3, 65536e3}) ==
        Approx(16e-3 + 2e-3 + 5e-3 + 17e-3 + 3 * 65e-3));
  CHECK(comm::seconds_to_measure({0, 65536e1}) == Approx(3 * 0.1));
}

TEST_CASE("all replicas measure the same links", "[schedule][tcp]") {
  for (const int replicas : {2, 3, 5}) {
    CHECK_NOTHROW(testing::in_threads(Backend::tcp, replicas, [](comm::Communicator& group) {
      expect(group.link_speed() == comm::kLoopback, "nobody has said it");
      const LinkSpeed speed = comm::measure_links(group);
      expect(speed.latency > 0 && speed.latency < 0.1, str("latency: ", speed));
      expect(speed.bytes_per_second > 1e6 && speed.bytes_per_second < 1e12, str(speed));
      std::vector<LinkSpeed> all(static_cast<std::size_t>(group.size()));
      group.all_gather(std::as_bytes(std::span(&speed, 1)), std::as_writable_bytes(std::span(all)));
      for (const LinkSpeed& other : all) expect(other == speed, "the same on all");
    }));
  }
}

TEST_CASE("groups that span hosts have the links that were measured or said", "[schedule][hosts]") {
  for (const auto& known : {std::optional<LinkSpeed>(), std::optional<LinkSpeed>({1e-3, 1e6})}) {
    const std::vector<int> hosts{0, 0, 1, 2, 2};
    CHECK_NOTHROW(testing::in_threads_on(hosts, [&](comm::Communicator& world) {
      comm::set_up_links(world, hosts, known);
      std::vector<double> all(hosts.size());
      const double own = world.all_reduce_seconds(1 << 20);
      world.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
      expect(own > 0 && std::ranges::count(all, own) == world.size(), "the same on all");
      const auto seconds_of = [&](int members) {
        return comm::ScheduleChoice(members, *known).all_reduce_seconds(1 << 20);
      };
      if (known) expect(own == seconds_of(3), "it was said, and each host sends once");
      const bool first = world.rank() < 2;
      const auto group = world.subgroup(first ? std::vector<int>{0, 1} : std::vector<int>{2, 3, 4});
      const double of_group = group->all_reduce_seconds(1 << 20);
      expect(first == (of_group == 0), "memory has no link");
      if (known && !first) expect(of_group == seconds_of(2), "a subgroup's");
      world.barrier();
    }));
  }
}
