#include "framework/launch/host_meeting.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include "framework/base/cores.h"
#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/poll_set.h"
#include "framework/base/text.h"
#include "framework/base/waited.h"
#include "framework/calls/table_copy.h"
#include "framework/comm/network/connect.h"
#include "framework/comm/network/listener.h"
#include "framework/comm/network/secret.h"
#include "framework/launch/long_wait.h"
#include "framework/launch/stop_signals.h"
#include "framework/maps/first_failure.h"
#include "framework/maps/machine.h"
#include "framework/storage/checksum.h"

namespace lockstep::launcher {
namespace {

using Peer = HostLinks::Peer;
using std::chrono::milliseconds;

constexpr milliseconds kPauseBetweenTries{100};
constexpr milliseconds kLook{50};

void tell_missing(const HostOptions& hosts, const std::string& missing) {
  log_info(str("host ", hosts.rank, " of ", hosts.count, " waits, for ",
               static_cast<double>(hosts.meet_timeout.count()) / 1000,
               " s at most (--meet-timeout): ", missing));
}

// Returns a network interface's addresses by family (AF_INET, AF_INET6). ValueError if it has none.
std::map<int, std::string> addresses_of_interface(const std::string& name) {
  ifaddrs* first = nullptr;
  std::map<int, std::string> found;
  std::set<std::string> all;
  if (::getifaddrs(&first) != 0) throw CommError("the network interfaces can't be listed");
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    all.insert(each->ifa_name);
    const int family = each->ifa_addr != nullptr ? each->ifa_addr->sa_family : AF_UNSPEC;
    if (name != each->ifa_name || (family != AF_INET && family != AF_INET6)) continue;
    const void* const bytes =
        family == AF_INET
            ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(each->ifa_addr)->sin_addr)
            : &reinterpret_cast<sockaddr_in6*>(each->ifa_addr)->sin6_addr;
    std::array<char, INET6_ADDRSTRLEN> text{};
    found.emplace(family, ::inet_ntop(family, bytes, text.data(), text.size()));
  }
  ::freeifaddrs(first);
  require(!found.empty(), "there is no network interface ", name,
          " with an address; this host has ", join(all));
  return found;
}

std::vector<comm::HostAndPort> places_of(const HostOptions& hosts) {
  std::vector places{comm::HostAndPort::parse(hosts.rendezvous)};
  for (const std::string& more : hosts.more_rendezvous) {
    places.push_back(comm::HostAndPort::parse(more));
  }
  return places;
}

std::filesystem::path secret_file(const HostOptions& hosts) {
  return hosts.secret_file.empty() ? comm::Secret::default_file() : hosts.secret_file;
}

// Returns the secret. A file that the options name must exist. The user's default file is made by
// host 0; other hosts wait for it, since it may be about to come into a home that the hosts share.
comm::Secret users_secret(const HostOptions& hosts, Waited& waited) {
  const auto file = secret_file(hosts);
  if (!hosts.secret_file.empty()) return comm::Secret::read(file);
  if (hosts.rank == 0) return comm::Secret::read_or_make(file);
  LongWait wait;
  std::error_code missing;
  while (!std::filesystem::exists(file, missing) && waited.look() < hosts.meet_timeout) {
    if (wait.is_to_tell()) {
      tell_missing(hosts, str("there is no secret ", file.string(),
                              " yet. Host 0 makes it on first use; where ",
                              "homes are not shared, copy it from there, as one shares a key of "
                              "ssh"));
    }
    std::this_thread::sleep_for(kPauseBetweenTries);
  }
  try {
    return comm::Secret::read(file);
  } catch (const DataError& error) {
    throw DataError(str(error.what(), " (host 0 makes ", file.string(),
                        " on first use; copy it from there, as one shares a key of ssh)"));
  }
}

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
  facts["the layout of the call table"] = calls::table_layout();
  if (options.hosts.allow_mixed) return facts;
  facts["the program's checksum"] = checksum_of_program();
  facts["LibTorch"] = maps::libtorch_version();
  facts["the BLAS"] = maps::blas().name;
  facts["the kind of CPU"] = maps::cpu_capability();
  return facts;
}

// Returns "LibTorch is 2.6.0, on host 0 it is 1.13.1; …", or "" if `theirs` equal those of host 0.
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

// The meeting of the hosts. A signal ends it on all of them.
class Meeting {
 public:
  Meeting(HostLinks& links, const LaunchOptions& options)
      : links_(links),
        options_(options),
        who_(links.own() == 0 ? "" : str("host ", links.own(), ": ")) {}

  JobPlan meet() {
    const comm::Secret secret =
        before_others([&] { return users_secret(options_.hosts, waited_); });
    // Checked before this host meets others, so that a wrong name ends this host alone.
    if (!options_.hosts.interface.empty()) (void)addresses_of_interface(options_.hosts.interface);
    return links_.own() == 0 ? meet_as_first(secret) : meet_as_other(secret);
  }

  void meet_again(JobPlan& plan, const std::function<void()>& prepare) {
    if (links_.own() != 0) {
      links_.tell(Ready{});
      // Host 0 may first wait for hosts that are gone.
      wait_for_begin(2 * options_.timeout, " did not start again");
      plan.layout = begins_->plan.layout;
      return try_or_tell(prepare);
    }
    try_or_tell([&] {
      auto& peers = links_.peers();
      const auto is_gone = [](const Peer& peer) {
        return !peer.link->is_open() || !peer.problem.empty();
      };
      const auto is_awaited = [&](const Peer& peer) {
        return !is_gone(peer) && !links_.is_ready(peer);
      };
      (void)hear_until(options_.timeout, [&] { return std::ranges::none_of(peers, is_awaited); });
      std::erase_if(peers, [&](const Peer& peer) { return is_gone(peer) || is_awaited(peer); });
      leave_out_others(plan);
      prepare();
    });
    links_.tell(Begins{{plan.layout, plan.math_threads}, ""});
  }

 private:
  JobPlan meet_as_first(const comm::Secret& secret) {
    const std::string rendezvous = before_others([&] { return listen(secret); });
    log_info(str("host 0 of ", links_.hosts(), " waits for the others at ", rendezvous));
    JobPlan plan;
    try_or_tell([&] {
      hellos_[0] = own_hello();
      const auto all_are_here = [&] { return hellos_.size() == links_.hosts(); };
      LongWait long_wait;
      (void)hear_all_until(std::min(rest(), LongWait::kMoment), all_are_here);
      if (long_wait.is_to_tell() && !all_are_here()) {
        tell_missing(options_.hosts, str("nothing yet of ", absent()));
      }
      wait(rest(), all_are_here, [&] {
        return str(absent(), " did not come to the rendezvous ", rendezvous, " within ",
                   options_.hosts.meet_timeout.count(), " ms",
                   other_secret_.empty() ? "" : "; " + other_secret_);
      });
      listener_.reset();
      auto& peers = links_.peers();
      std::erase_if(peers, [](const Peer& peer) { return peer.host == HostLinks::kUnknown; });
      std::ranges::sort(peers, {}, &Peer::host);
      // Launchers on this machine reach it by loopback, an address that is of no use to others.
      const auto from_elsewhere = std::ranges::find_if_not(
          peers, [](const Peer& peer) { return comm::is_loopback(peer.link->own_address()); });
      const Peer& met = from_elsewhere != peers.end() ? *from_elsewhere : peers[0];
      const comm::NetworkOptions network = own_network(*met.link, secret);
      const auto replicas = mapped(hellos_, [](const auto& one) { return one.second.replicas; });
      const auto cores = mapped(hellos_, [](const auto& one) { return one.second.cores; });
      plan = make_plan(options_, replicas, cores);
      links_.tell(
          Begins{plan, options_.hosts.prepare ? options_.hosts.prepare("") : "", network.address});
      plan.network = network;
      const auto is_ready = [&](const Peer& peer) { return links_.is_ready(peer); };
      wait(
          options_.timeout, [&] { return std::ranges::all_of(peers, is_ready); },
          [&] { return str(std::ranges::find_if_not(peers, is_ready)->name(), " was not ready"); });
      links_.tell(Ready{});
      links_.flush();
    });
    return plan;
  }

  JobPlan meet_as_other(const comm::Secret& secret) {
    auto link = before_others([&] { return find_first(secret); });
    // This host waits longer than host 0, which is to give up first and tell the others.
    const auto later_than = [](milliseconds wait) { return wait + milliseconds(1000); };
    link->limit_silence(options_.timeout);
    links_.peers().push_back({0, std::move(link)});
    const Peer& first = links_.peers()[0];
    comm::NetworkOptions network;
    try_or_tell([&] { network = own_network(*first.link, secret); });
    links_.tell(own_hello());
    log_info(str("host ", links_.own(), " of ", links_.hosts(), " has reached host 0 at ",
                 first.link->peer(), " and waits for the others"));
    // Host 0 may prepare for as long as it then waits for others to prepare.
    wait_for_begin(later_than(options_.hosts.meet_timeout + options_.timeout),
                   " did not say how the job begins");
    if (options_.hosts.interface.empty() && comm::is_loopback(network.address)) {
      network.address = begins_->address;
    }
    begins_->plan.network = network;
    try_or_tell([&] {
      if (options_.hosts.prepare) (void)options_.hosts.prepare(begins_->told);
    });
    links_.tell(Ready{});
    wait(
        later_than(options_.timeout), [&] { return links_.is_ready(first); },
        [&] { return str(first.name(), " did not say that the job begins"); });
    return begins_->plan;
  }

  // Runs a step that may take long and meets nobody: a signal ends this host alone, at once.
  auto before_others(const auto& step) const -> decltype(step()) {
    const StopHandler nobody_is_met(stop_at_once);
    if (stop_.signal() != 0) throw Stopped(stop_.signal());
    return step();
  }

  std::unique_ptr<comm::Link> find_first(const comm::Secret& secret) {
    const HostOptions& hosts = options_.hosts;
    const auto places = places_of(hosts);
    const std::string others =
        places.size() == 1 ? "" : str(" or one of ", places.size() - 1, " other ports");
    LongWait wait;
    try {
      return comm::find_listener(
          places, secret,
          {.begin = std::chrono::steady_clock::now() + rest() - hosts.meet_timeout,
           .timeout = hosts.meet_timeout,
           .job_name = hosts.job,
           .unknown_name_hint = hosts.unknown_name_hint,
           .tell = [&](const std::string& missing) {
             if (!wait.is_to_tell()) return;
             tell_missing(hosts,
                          str("host 0 is not yet at ", hosts.rendezvous, others, ": ", missing));
           }});
    } catch (const comm::OtherSecret& error) {
      throw DataError(str(error.what(), than_own_secret(),
                          ". Host 0 warns of this, too, and names "
                          "its own file"));
    }
  }

  std::string than_own_secret() const {
    return str(" than this host, which has that of ", secret_file(options_.hosts).string(),
               ": all hosts need the same");
  }

  // Listens at the first place where nobody else does, and returns that place.
  std::string listen(const comm::Secret& secret) {
    const HostOptions& hosts = options_.hosts;
    const auto places = places_of(hosts);
    LongWait wait;
    for (bool is_first = true;; is_first = false) {
      std::string missing;
      std::string unknown_host;
      for (const comm::HostAndPort& at : places) {
        if (at.host == unknown_host) continue;
        try {
          listener_.emplace(at, secret, comm::new_job_id(), comm::Listener::Limits{}, hosts.job);
          if (!listener_->why_all().empty()) log_warning(listener_->why_all());
          return comm::HostAndPort{at.host, listener_->port()}.text();
        } catch (const comm::AddressInUse& error) {
          missing = error.what();
          if (is_first && &at != &places.back()) log_info(missing + "; tries the next port");
        } catch (const comm::NameUnknown& error) {
          missing = error.what() + hosts.unknown_name_hint;
          unknown_host = at.host;
        }
      }
      require<Timeout>(rest().count() > 0, missing, ", for ", hosts.meet_timeout.count(), " ms");
      if (wait.is_to_tell()) tell_missing(hosts, missing);
      std::this_thread::sleep_for(kPauseBetweenTries);
    }
  }

  void leave_out_others(JobPlan& plan) {
    const auto& hosts = plan.layout.hosts();
    std::vector<bool> stays(hosts.size(), false);
    stays[0] = true;
    for (const Peer& peer : links_.peers()) stays[peer.host] = true;
    auto gone = consecutive(std::size_t{0}, hosts.size());
    std::erase_if(gone, [&](std::size_t h) { return stays[h] || hosts[h].replicas.size == 0; });
    if (gone.empty()) return;
    plan.layout = plan.layout.without(stays);
    if (links_.peers().empty()) plan.network.reset();
    log_warning(str("goes on without host", gone.size() == 1 ? " " : "s ", join(gone), ": ",
                    counted(plan.layout.replicas(), "replica"), " on ",
                    counted(plan.layout.workers(), "worker")));
  }

  // Returns the hosts that have not come, as "hosts 1, 2 of 4".
  std::string absent() const {
    auto absent = consecutive(std::size_t{1}, links_.hosts() - 1);
    std::erase_if(absent, [&](std::size_t host) { return hellos_.contains(host); });
    const auto names = mapped(absent, [](std::size_t host) { return std::to_string(host); });
    return str(names.size() == 1 ? "host " : "hosts ", listed(names), " of ", links_.hosts());
  }

  Hello own_hello() const {
    return {links_.own(), options_.hosts.replicas, usable_cores(), facts_of(options_)};
  }

  // Returns how others reach this host's workers: by its address on the link, or a named interface.
  comm::NetworkOptions own_network(const comm::Link& link, const comm::Secret& secret) const {
    comm::NetworkOptions network{link.own_address(), secret.of_job(link.job()), link.job()};
    const std::string& interface = options_.hosts.interface;
    if (interface.empty()) return network;
    const bool is_ipv4 = network.address.find(':') == std::string::npos;
    const auto addresses = addresses_of_interface(interface);
    const auto own = addresses.find(is_ipv4 ? AF_INET : AF_INET6);
    require(own != addresses.end(), "the network interface ", interface, " has no ",
            is_ipv4 ? "IPv4" : "IPv6", " address, as the rendezvous has");
    network.address = own->second;
    return network;
  }

  // Runs a step that other hosts don't see. Its error ends the meeting on all hosts.
  void try_or_tell(const std::function<void()>& step) {
    try {
      step();
    } catch (const std::exception& error) {
      refuse(error, who_ + maps::text_of(error));
      if (links_.own() == 0) throw;
      throw_as(error_kind(error), who_ + maps::text_of(error));
    }
  }

  void refuse(const std::exception& error, const std::string& text) {
    const auto* const stopped = dynamic_cast<const Stopped*>(&error);
    links_.tell(Refused{error_kind(error), stopped != nullptr ? stopped->signal() : 0, text});
    links_.flush();
  }

  void check_stop() {
    const int signal = stop_.signal();
    if (signal == 0) return;
    const Stopped stopped(signal,
                          str("stopped by ", name_of_stop(signal), " before replicas started"));
    if (links_.own() != 0) refuse(stopped, who_ + stopped.what());
    throw stopped;
  }

  // Returns how much is left of the time in which all are to meet.
  milliseconds rest() {
    return std::chrono::ceil<milliseconds>(options_.hosts.meet_timeout - waited_.look());
  }

  // Hears other hosts until it is `enough`, or for `most`: then returns false.
  bool hear_until(milliseconds most, const std::function<bool()>& enough) {
    Waited waited;
    while (!enough()) {
      if (const auto heard = links_.receive()) {
        hear(*heard->from, heard->message);
        continue;
      }
      if (enough()) return true;  // receive() has noted which links have closed
      if (waited.look() >= most) return false;
      PollSet polled;
      links_.add_to(polled);
      if (listener_) listener_->add_to(polled);
      polled.add(stop_.descriptor());
      polled.wait(std::min(kLook, listener_ ? listener_->when() : kLook));
      check_stop();
      links_.progress();
      if (listener_) accept();
    }
    return true;
  }

  // Does the same, but throws ReplicaLost if a host is lost meanwhile.
  bool hear_all_until(milliseconds most, const std::function<bool()>& enough) {
    return hear_until(most, [&] {
      if (enough()) return true;
      for (const Peer& peer : links_.peers()) {
        const bool is_lost = peer.host != HostLinks::kUnknown && !peer.problem.empty();
        if (is_lost) throw ReplicaLost(peer.name() + peer.problem);
      }
      return false;
    });
  }

  // Does the same, but throws a Timeout with the text of `missing` if the time is over first.
  void wait(milliseconds most, const std::function<bool()>& enough,
            const std::function<std::string()>& missing) {
    if (!hear_all_until(most, enough)) throw Timeout(missing());
  }

  void wait_for_begin(milliseconds most, const char* missing) {
    wait(
        most, [&] { return begins_.has_value(); },
        [&] { return links_.peers()[0].name() + missing; });
  }

  // Takes new launchers, and forgets lost ones that have not said who they are.
  void accept() {
    auto& peers = links_.peers();
    std::erase_if(peers, [](const Peer& peer) {
      return peer.host == HostLinks::kUnknown && !peer.problem.empty();
    });
    for (auto& link : listener_->progress()) {
      peers.push_back({HostLinks::kUnknown, std::move(link)});
    }
    if (!other_secret_.empty() || listener_->other_secret().empty()) return;
    other_secret_ =
        str("a launcher at ", listener_->other_secret(), " has another secret", than_own_secret());
    log_warning(other_secret_);
  }

  void hear(Peer& from, const HostMessage& message) {
    if (const auto* const refused = std::get_if<Refused>(&message)) {
      if (refused->signal != 0) throw Stopped(refused->signal, refused->text);
      throw_as(refused->kind, refused->text);
    } else if (const auto* const begins = std::get_if<Begins>(&message)) {
      begins_ = *begins;
    } else if (const auto* const hello = std::get_if<Hello>(&message)) {
      if (listener_ && from.host == HostLinks::kUnknown) take_hello(from, *hello);
    }
  }

  void take_hello(Peer& peer, const Hello& hello) {
    peer.link->limit_silence(options_.timeout);
    const auto known = std::ranges::find(links_.peers(), hello.host, &Peer::host);
    const std::string other = known == links_.peers().end() ? "" : known->link->peer();
    peer.host = hello.host;  // set first: the errors below name the host
    const std::string differs = differences(hello.facts, hellos_.at(0).facts);
    require(differs.empty(), peer.name(), " differs from host 0: ", differs);
    require(hello.host > 0 && hello.host < links_.hosts() && other.empty(),
            "two launchers have node rank ", hello.host, ": ", other, " and ", peer.link->peer());
    hellos_[hello.host] = hello;
  }

  HostLinks& links_;
  const LaunchOptions& options_;
  const std::string who_;  // how an error of this host begins on others
  StopSignals stop_;
  Waited waited_;                           // since the meeting began
  std::optional<comm::Listener> listener_;  // host 0's, until all have come
  std::map<std::size_t, Hello> hellos_;     // host 0's: of the hosts that have come
  std::string other_secret_;                // host 0's: a warning of another secret, or ""
  std::optional<Begins> begins_;
};

}  // namespace

Hosts meet_hosts(const LaunchOptions& options) {
  Hosts hosts{
      {static_cast<std::size_t>(options.hosts.rank), static_cast<std::size_t>(options.hosts.count)},
      {}};
  if (options.hosts.count == 1) {
    hosts.plan = make_plan(options, {0}, {usable_cores()});
  } else {
    hosts.plan = Meeting(hosts.links, options).meet();
  }
  return hosts;
}

void meet_again(Hosts& hosts, const LaunchOptions& options, const std::function<void()>& prepare) {
  if (hosts.links.peers().empty()) return prepare();
  hosts.links.begin_run();
  Meeting(hosts.links, options).meet_again(hosts.plan, prepare);
}

}  // namespace lockstep::launcher
