#include "framework/replicas/host_facts.h"

#include <cstddef>
#include <fstream>
#include <span>
#include <vector>

#include "framework/base/text.h"
#include "framework/replicas/machine.h"
#include "framework/storage/checksum.h"
#include "framework/watch/board_copy.h"

namespace lockstep::replicas {
namespace {

std::string checksum_of_program() {
  std::ifstream in("/proc/self/exe", std::ios::binary);
  storage::Checksum sum;
  std::vector<char> buffer(std::size_t{1} << 20);
  while (in) {
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    sum.add(std::as_bytes(std::span(buffer).first(static_cast<std::size_t>(in.gcount()))));
  }
  return sum.text();
}

}  // namespace

Facts facts_of(const LaunchOptions& options) {
  Facts facts = options.hosts.same;
  facts["the number of hosts"] = std::to_string(options.hosts.count);
  facts["the number of replicas"] = std::to_string(options.replicas);
  facts["the number of workers"] = std::to_string(options.workers);
  facts["the axis' name"] = options.axis_name;
  facts["math threads asked for"] = std::to_string(options.threads_per_replica);
  facts["the number of restarts allowed"] = std::to_string(options.max_restarts);
  facts["the timeout"] = str(options.timeout.count(), " ms");
  facts["the links' speed"] = options.hosts.link;
  facts["the layout of the board of calls"] = watch::board_layout();
  if (options.hosts.allow_mixed) return facts;
  facts["the program's checksum"] = checksum_of_program();
  facts["LibTorch"] = libtorch_version();
  facts["the BLAS"] = blas().name;
  facts["the kind of CPU"] = cpu_capability();
  return facts;
}

std::string differences(const Facts& theirs, const Facts& first) {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> all;
  const auto value_in = [](const Facts& facts, const std::string& name) {
    const auto found = facts.find(name);
    return found == facts.end() ? std::string("not there") : cut(found->second, 200);
  };
  Facts names = theirs;
  names.insert(first.begin(), first.end());
  for (const auto& [name, value] : names) {
    const std::string there = value_in(theirs, name);
    const std::string here = value_in(first, name);
    if (there != here) all.push_back(str(name, " is ", there, ", on host 0 it is ", here));
  }
  if (all.size() > kMost) {
    const std::size_t more = all.size() - kMost;
    all.resize(kMost);
    all.push_back(str("and ", more, " more"));
  }
  return join(all, "; ");
}

}  // namespace lockstep::replicas
