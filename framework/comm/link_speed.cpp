#include "framework/comm/link_speed.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/base/text.h"
#include "framework/comm/communicator.h"

namespace lockstep::comm {
namespace {

constexpr int kSmallMessages = 8;
// Messages grow until one takes this long, and this many latencies: switches let the first bytes
// pass faster than later ones.
constexpr double kLongEnough = 32e-3;
constexpr double kManyLatencies = 8;
constexpr std::size_t kFirst = std::size_t{64} << 10;
constexpr std::size_t kLargest = std::size_t{4} << 20;

// Returns the average seconds of `count` exchanges, in which `sent` goes to the next replica and as
// much comes from the one before. In a single one, all may have come before it began.
double seconds_around(Communicator& group, int count, ConstBytes sent, Bytes received) {
  const int next = (group.rank() + 1) % group.size();
  const int before = (group.rank() + group.size() - 1) % group.size();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) group.permute(sent, next, received, before);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return seconds.count() / count;
}

// Returns the largest of all replicas' numbers.
double most(Communicator& group, double own) {
  return std::ranges::max(group.all_gather(own));
}

}  // namespace

LinkSpeed LinkSpeed::parse(std::string_view text) {
  double milliseconds = 0;
  double megabytes = 0;
  char unit = 0;
  int end = 0;
  const std::string whole(text);
  const ClassicLocale classic;
  const int count =
      std::sscanf(whole.c_str(), "%lf ms, %lf %cB/s%n", &milliseconds, &megabytes, &unit, &end);
  if (unit == 'G') megabytes *= 1e3;
  constexpr double kMost = 1e9;
  constexpr double kLeast = 1e-3;  // 1 kB/s
  require(count == 3 && (unit == 'M' || unit == 'G') &&
              static_cast<std::size_t>(end) == whole.size() && milliseconds >= 0 &&
              milliseconds <= kMost && megabytes >= kLeast && megabytes <= kMost,
          "'", text, "' is no speed of a link, such as '0.21 ms, 117 MB/s'");
  return {.latency = milliseconds * 1e-3, .bytes_per_second = megabytes * 1e6};
}

std::ostream& operator<<(std::ostream& out, const LinkSpeed& speed) {
  const double megabytes = speed.bytes_per_second * 1e-6;
  out << formatted("%.3g ms, ", speed.latency * 1e3);
  constexpr double kThousand = 999.5;  // from here on three digits would have an exponent
  return out << (megabytes < kThousand ? formatted("%.3g MB/s", megabytes)
                                       : formatted("%.3g GB/s", megabytes * 1e-3));
}

LinkSpeed measure_links(Communicator& group) {
  require(group.size() > 1, "measure_links: a group of one has no links");
  std::vector<std::byte> sent(kFirst);
  std::vector<std::byte> received(kFirst);
  double latency = std::numeric_limits<double>::max();
  group.barrier();  // connects
  for (int i = 0; i < 2; ++i) {
    const double seconds = seconds_around(group, kSmallMessages, std::span(sent).first(1),
                                          std::span(received).first(1));
    latency = std::min(latency, most(group, seconds));
  }
  const double enough = std::max(kLongEnough, kManyLatencies * latency);
  // A connection begins slowly: the last size goes again.
  while (most(group, seconds_around(group, 1, sent, received)) < enough && sent.size() < kLargest) {
    sent.resize(4 * sent.size());
    received.resize(sent.size());
  }
  const double seconds = most(group, seconds_around(group, 2, sent, received));
  const int latencies = sent.size() > kSentAtOnce ? 2 : 1;
  // Latencies that vary could leave nothing for the bytes.
  const double moving = std::max(seconds - latencies * latency, seconds / 4);
  return {.latency = latency, .bytes_per_second = static_cast<double>(sent.size()) / moving};
}

double seconds_to_measure(const LinkSpeed& speed) {
  const auto seconds_of = [&](std::size_t bytes) {
    return speed.latency + static_cast<double>(bytes) / speed.bytes_per_second;
  };
  const double enough = std::max(kLongEnough, kManyLatencies * speed.latency);
  std::size_t size = kFirst;
  double all = 2 * kSmallMessages * speed.latency + seconds_of(size);
  while (seconds_of(size) < enough && size < kLargest) all += seconds_of(size *= 4);
  return all + 2 * seconds_of(size);
}

}  // namespace lockstep::comm
