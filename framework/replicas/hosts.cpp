#include "framework/replicas/hosts.h"

#include <algorithm>
#include <array>
#include <exception>
#include <fstream>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>

#include "framework/base/cores.h"
#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/scoped_value.h"
#include "framework/base/text.h"
#include "framework/replicas/first_failure.h"
#include "framework/replicas/machine.h"
#include "framework/storage/checksum.h"

namespace lockstep::replicas {
namespace {

using std::chrono::milliseconds;
using Json = nlohmann::json;

// How long host 0 waits for a better root cause than the first failure that it hears of.
constexpr milliseconds kHostsGrace{800};
// How long another host waits for host 0's verdict once it has reported a failure.
constexpr milliseconds kVerdictGrace{1600};
constexpr milliseconds kFlush{500};

// A snapshot and what stands around it in a message.
static_assert(watch::Board::kSnapshot + 1024 <= comm::Link::kLongestMessage);

// Messages are maps with "what". CBOR, so that any bytes may be in a text.
std::string encode(const Json& message) {
  const std::vector<std::uint8_t> bytes = Json::to_cbor(message);
  return {bytes.begin(), bytes.end()};
}

Json decode(const std::string& text) {
  return Json::from_cbor(text.begin(), text.end());
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

// By name, what must be the same on all hosts.
std::map<std::string, std::string> facts_of(const LaunchOptions& options) {
  std::map<std::string, std::string> facts = options.hosts.same;
  facts["the number of hosts"] = std::to_string(options.hosts.count);
  facts["the number of replicas"] = std::to_string(options.replicas);
  facts["the number of workers"] = std::to_string(options.workers);
  facts["the axis' name"] = options.axis_name;
  facts["math threads asked for"] = std::to_string(options.threads_per_replica);
  facts["the number of restarts allowed"] = std::to_string(options.max_restarts);
  facts["the timeout"] = str(options.timeout.count(), " ms");
  facts["the links' speed"] = options.hosts.link;
  if (options.hosts.allow_mixed) return facts;
  facts["the program's checksum"] = checksum_of_program();
  facts["LibTorch"] = libtorch_version();
  facts["the BLAS"] = blas().name;
  facts["the kind of CPU"] = cpu_capability();
  return facts;
}

// "LibTorch is 2.6.0, on host 0 it is 1.13.1; …"
std::string differences(const std::map<std::string, std::string>& theirs,
                        const std::map<std::string, std::string>& first) {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> all;
  const auto value_in = [](const auto& facts, const std::string& name) {
    const auto found = facts.find(name);
    return found == facts.end() ? std::string("not there") : cut(found->second, 200);
  };
  std::set<std::string> names;
  for (const auto& [name, value] : theirs) names.insert(name);
  for (const auto& [name, value] : first) names.insert(name);
  for (const std::string& name : names) {
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

// A network interface's addresses by family (AF_INET, AF_INET6). ValueError if it has none.
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

comm::Secret secret_of(const HostOptions& hosts) {
  if (!hosts.secret_file.empty()) return comm::Secret::read(hosts.secret_file);
  const auto file = comm::Secret::default_file();
  if (hosts.rank == 0) return comm::Secret::read_or_make(file);
  try {
    return comm::Secret::read(file);
  } catch (const DataError& error) {
    throw DataError(str(error.what(), " (host 0 makes ", file.string(),
                        " on first use; copy it from there, as one shares a key of ssh)"));
  }
}

// What tells other hosts that an error has ended a meeting.
Json refusal_by(const std::exception& error, const std::string& text) {
  const auto* const stopped = dynamic_cast<const Stopped*>(&error);
  const int signal = stopped != nullptr ? stopped->signal() : 0;
  return {{"what", "refused"},
          {"type", traits_of(error_kind(error)).name},
          {"text", text},
          {"signal", signal},
          {"status", signal != 0 ? status_of_stop(signal) : exit_status(error)}};
}

// The error that has ended a meeting on another host.
std::exception_ptr error_of(const Json& refusal) {
  const std::string text = refusal.at("text");
  const int signal = refusal.at("signal");
  if (signal != 0) return std::make_exception_ptr(Stopped(signal, text));
  return traits_of(kind_named(refusal.at("type").get<std::string>())).make(text);
}

// A host's share of the replicas.
std::vector<std::int64_t> shares_of(const std::vector<std::int64_t>& asked, std::int64_t replicas) {
  const auto hosts = static_cast<std::int64_t>(asked.size());
  std::int64_t sum = 0;
  for (const std::int64_t each : asked) sum += each;
  if (sum == 0) {
    std::vector<std::int64_t> even;
    for (std::int64_t host = 0; host < hosts; ++host) {
      even.push_back(shard(replicas, hosts, host).size);
    }
    return even;
  }
  for (std::int64_t host = 0; host < hosts; ++host) {
    require(asked[static_cast<std::size_t>(host)] > 0, "host ", host,
            " does not say how many replicas it runs, but other hosts do: give --host-replicas on "
            "all hosts or on none");
  }
  require(sum == replicas, "the hosts run ", join(asked, " + "), " = ", sum,
          " replicas, and the job has ", replicas);
  return asked;
}

}  // namespace

struct Hosts::Peer {
  std::size_t host;
  std::unique_ptr<comm::Link> link;
  std::int64_t asked_replicas = 0;
  std::int64_t threads = 0;  // that it would give to a replica that has an even share
  std::int64_t cores = 0;
  bool is_ready = false;
  std::int64_t run = 0;           // the last one for which it is ready
  std::set<std::string> wants{};  // keys that it waits for
  std::optional<HostVerdict> report{};
  Clock::time_point heard{};

  [[nodiscard]] std::string name() const { return str("host ", host, " (", link->peer(), ")"); }
};

std::string JobPlan::text() const {
  Json json{{"math_threads", math_threads}, {"workers", layout.workers()}};
  for (const JobLayout::Host& host : layout.hosts()) json["hosts"].push_back(host.replicas.size);
  if (network) {
    const auto bytes = [](const auto& from) {
      return std::vector<std::uint8_t>(
          reinterpret_cast<const std::uint8_t*>(from.data()),
          reinterpret_cast<const std::uint8_t*>(from.data()) + from.size());
    };
    json["address"] = network->address;
    json["job"] = bytes(network->job);
    json["secret"] = bytes(network->secret.bytes());
  }
  return encode(json);
}

JobPlan JobPlan::parse(const std::string& text) {
  const Json json = decode(text);
  JobPlan plan{JobLayout(json.at("hosts").get<std::vector<std::int64_t>>(), json.at("workers")),
               json.at("math_threads")};
  if (json.contains("address")) {
    const auto bytes = [](const Json& from, auto& to) {
      const auto values = from.get<std::vector<std::uint8_t>>();
      std::ranges::transform(values, to.begin(),
                             [](std::uint8_t value) { return std::byte{value}; });
    };
    comm::JobId job{};
    std::array<std::byte, comm::Secret::kBytes> secret{};
    bytes(json.at("job"), job);
    bytes(json.at("secret"), secret);
    plan.network.emplace(Network{json.at("address"), job, comm::Secret(secret)});
  }
  return plan;
}

Hosts::Hosts(const LaunchOptions& options, const StopSignals& stop)
    : own_(static_cast<std::size_t>(options.hosts.rank)), patience_(options.timeout) {
  during(stop, [&] { meet(options); });
}

void Hosts::during(const StopSignals& stop, const std::function<void()>& meeting) {
  const ScopedValue<const StopSignals*> signals(stop_, &stop);
  meeting();
}

// A signal ends the meeting on all hosts.
void Hosts::check_stop() {
  if (stop_->signal() == 0) return;
  const Stopped own(stop_->signal());
  const std::string text = str(own.what(), " before replicas started");
  if (own_ != 0) {
    send(*peers_[0], refusal_by(own, str("host ", own_, ": ", text)));
    flush();
  }
  throw Stopped(own.signal(), text);
}

void Hosts::meet(const LaunchOptions& options) {
  const comm::Secret secret = secret_of(options.hosts);
  // Before anybody is met.
  if (!options.hosts.interface.empty()) (void)addresses_of_interface(options.hosts.interface);
  if (own_ == 0) {
    meet_as_first(options, secret);
  } else {
    meet_as_other(options, secret);
  }
}

Hosts::~Hosts() = default;

void Hosts::forget() noexcept {
  peers_.clear();
}

void Hosts::meet_as_first(const LaunchOptions& options, const comm::Secret& secret) {
  const auto at = comm::HostAndPort::parse(options.hosts.rendezvous);
  const auto deadline = Clock::now() + options.timeout;
  const comm::JobId job = comm::new_job_id();
  listener_ = std::make_unique<comm::Listener>(at, secret, job, comm::Listener::Limits{});
  log_info(str("host 0 of ", options.hosts.count, " waits for the others at ", at.host, ":",
               listener_->port()));
  const auto count = static_cast<std::size_t>(options.hosts.count);
  // To launchers that have not yet said which host they are.
  std::vector<std::unique_ptr<comm::Link>> nameless;
  try {
    const auto is_absent = [&](std::size_t host) {
      return std::ranges::none_of(peers_, [&](const auto& peer) { return peer->host == host; });
    };
    while (peers_.size() + 1 < count) {
      std::vector<pollfd> polled;
      listener_->add_polled(polled);
      for (const auto& link : nameless) polled.push_back(link->polled());
      add_polled(polled);
      polled.push_back({stop_->descriptor(), POLLIN, 0});
      const auto rest = std::chrono::ceil<milliseconds>(deadline - Clock::now());
      if (rest.count() <= 0) {
        std::vector<std::string> absent;
        for (std::size_t host = 1; host < count; ++host) {
          if (is_absent(host)) absent.push_back(std::to_string(host));
        }
        throw Timeout(str(absent.size() == 1 ? "host " : "hosts ", join(absent), " of ", count,
                          " did not come to the rendezvous ", at.host, ":", listener_->port(),
                          " within ", options.timeout.count(), " ms"));
      }
      ::poll(polled.data(), polled.size(),
             static_cast<int>(std::min(rest, listener_->when()).count()));
      check_stop();
      for (auto& link : listener_->progress()) nameless.push_back(std::move(link));
      for (auto& link : nameless) {
        link->progress();
        if (const auto hello = link->receive()) {
          const Json said = decode(*hello);
          if (said.at("what") == "refused") std::rethrow_exception(error_of(said));
          link->limit_silence(options.timeout);
          auto peer = std::make_unique<Peer>(Peer{said.at("host"), std::move(link)});
          peer->asked_replicas = said.at("replicas");
          peer->cores = said.at("cores");
          const std::string name = peer->name();
          const std::size_t host = peer->host;
          const bool is_free = host > 0 && host < count && is_absent(host);
          std::string others;
          for (const auto& known : peers_) {
            if (known->host == host) others = known->link->peer();
          }
          peers_.push_back(std::move(peer));  // it hears of what follows
          const std::string differs = differences(said.at("facts"), facts_of(options));
          require(differs.empty(), name, " differs from host 0: ", differs);
          require(is_free, "two launchers have node rank ", host, ": ", others, " and ",
                  peers_.back()->link->peer());
        }
      }
      std::erase_if(nameless, [](const auto& link) { return !link || !link->is_open(); });
      progress();
      check_meeting();
    }
    choose_address(options);
    std::ranges::sort(peers_, {}, [](const auto& peer) { return peer->host; });
    make_plan(options);
    const std::string told = options.hosts.prepare ? options.hosts.prepare("") : "";
    const Json begins{{"what", "plan"}, {"plan", plan_->text()}, {"told", told}};
    send_all(begins);
    plan_->network.emplace(JobPlan::Network{own_address_, job, secret.of_job(job)});
    wait(
        deadline,
        [&] {
          return std::ranges::all_of(peers_, [](const auto& peer) { return peer->is_ready; });
        },
        [&] {
          const auto late =
              std::ranges::find_if(peers_, [](const auto& peer) { return !peer->is_ready; });
          return str((*late)->name(), " was not ready");
        });
    send_all(Json::object({{"what", "go"}}));
    flush();
  } catch (const std::exception& error) {
    for (auto& link : nameless) {
      if (link) peers_.push_back(std::make_unique<Peer>(Peer{0, std::move(link)}));
    }
    send_all(refusal_by(error, text_of(error)));
    flush();
    throw;
  }
  listener_.reset();
}

void Hosts::meet_as_other(const LaunchOptions& options, const comm::Secret& secret) {
  const auto at = comm::HostAndPort::parse(options.hosts.rendezvous);
  const auto deadline = Clock::now() + options.timeout;
  std::unique_ptr<comm::Link> link;
  {
    const StopHandler nobody_is_met(stop_at_once);
    if (stop_->signal() != 0) throw Stopped(stop_->signal());
    link = comm::connect(at, secret, options.timeout);
  }
  const comm::JobId job = link->job();
  link->limit_silence(options.timeout);
  peers_.push_back(std::make_unique<Peer>(Peer{0, std::move(link)}));
  Peer& first = *peers_[0];
  try_or_tell([&] { choose_address(options); });
  const Json hello{{"what", "hello"},
                   {"host", own_},
                   {"replicas", options.hosts.replicas},
                   {"cores", usable_cores()},
                   {"facts", facts_of(options)}};
  send(first, hello);
  // Host 0 gives up first, and tells.
  const auto later = deadline + options.timeout + milliseconds(1000);
  wait(
      later, [&] { return plan_.has_value(); },
      [&] { return str(first.name(), " did not say how the job begins"); });
  plan_->network.emplace(JobPlan::Network{own_address_, job, secret.of_job(job)});
  try_or_tell([&] {
    if (options.hosts.prepare) (void)options.hosts.prepare(told_);
  });
  send(first, Json::object({{"what", "ready"}}));
  wait(
      later, [&] { return first.is_ready; },
      [&] { return str(first.name(), " did not say that the job begins"); });
}

// What goes wrong here ends the meeting on all hosts.
void Hosts::try_or_tell(const std::function<void()>& step) {
  try {
    step();
  } catch (const std::exception& error) {
    const std::string text = str("host ", own_, ": ", text_of(error));
    send(*peers_[0], refusal_by(error, text));
    flush();
    throw_as(error_kind(error), text);
  }
}

void Hosts::choose_address(const LaunchOptions& options) {
  own_address_ = peers_[0]->link->own_address();
  const std::string& interface = options.hosts.interface;
  if (interface.empty()) return;
  const bool is_ipv4 = own_address_.find(':') == std::string::npos;
  const auto addresses = addresses_of_interface(interface);
  const auto own = addresses.find(is_ipv4 ? AF_INET : AF_INET6);
  require(own != addresses.end(), "the network interface ", interface, " has no ",
          is_ipv4 ? "IPv4" : "IPv6", " address, as the rendezvous has");
  own_address_ = own->second;
}

void Hosts::make_plan(const LaunchOptions& options) {
  std::vector<std::int64_t> asked{options.hosts.replicas};
  std::vector<std::int64_t> cores{usable_cores()};
  for (const auto& peer : peers_) {
    asked.push_back(peer->asked_replicas);
    cores.push_back(peer->cores);
  }
  const std::vector<std::int64_t> shares = shares_of(asked, options.replicas);
  std::int64_t threads = options.threads_per_replica;
  for (std::size_t host = 0; options.threads_per_replica == 0 && host < shares.size(); ++host) {
    const std::int64_t own = std::max<std::int64_t>(1, cores[host] / shares[host]);
    threads = host == 0 ? own : std::min(threads, own);
  }
  plan_.emplace(JobPlan{JobLayout(shares, options.workers), threads});
}

// Until it is `enough`. Throws a Timeout that says what is `missing`, and what another host says.
void Hosts::wait(Clock::time_point deadline, const std::function<bool()>& enough,
                 const std::function<std::string()>& missing) {
  while (!enough()) {
    if (Clock::now() >= deadline) throw Timeout(missing());
    poll_until(deadline);
    progress();
    check_meeting();
  }
}

void Hosts::check_meeting() const {
  if (refusal_) std::rethrow_exception(refusal_);
  if (verdict_) throw ReplicaLost(verdict_->text);
}

void Hosts::add_polled(std::vector<pollfd>& polled) const {
  for (const auto& peer : peers_) polled.push_back(peer->link->polled());
}

// While hosts meet. Returns in time for tell_alive(), too.
void Hosts::poll_until(Clock::time_point deadline) {
  const auto rest = std::chrono::ceil<milliseconds>(deadline - Clock::now());
  std::vector<pollfd> polled;
  add_polled(polled);
  polled.push_back({stop_->descriptor(), POLLIN, 0});
  const milliseconds most = std::clamp(rest, milliseconds(0), patience_ / 8);
  ::poll(polled.data(), polled.size(), static_cast<int>(most.count()));
  check_stop();
}

void Hosts::tell_alive() {
  const auto now = Clock::now();
  if (now - told_alive_ < patience_ / 8) return;
  told_alive_ = now;
  send_all({{"what", "alive"}});
}

void Hosts::progress() {
  tell_alive();
  for (const auto& peer : peers_) look_at(*peer);
  want_snapshots();
  decide();
}

void Hosts::look_at(Peer& peer) {
  peer.link->progress();
  std::string problem;
  try {
    while (const auto message = peer.link->receive()) {
      peer.heard = Clock::now();
      hear(peer, *message);
    }
    if (!peer.link->is_open()) {
      problem = str(" is gone: ", peer.link->why_closed());
    } else if (server_ != nullptr && Clock::now() - peer.heard > patience_) {
      problem = str(" has said nothing for ", patience_.count(), " ms: its launcher stands still");
    }
  } catch (const nlohmann::json::exception& error) {
    problem = str(" says what no launcher of this version says: ", error.what());
  } catch (const DataError& error) {
    problem = str(" says what no launcher of this version says: ", error.what());
  }
  if (problem.empty() || peer.report || verdict_) return;
  // A job may start again without one of its hosts, but not without host 0.
  peer.report = HostVerdict{3, peer.name() + problem, /*is_lost=*/own_ == 0, /*doubt=*/0};
}

void Hosts::hear(Peer& from, const std::string& text) {
  const Json said = decode(text);
  const std::string what = said.at("what");
  const std::int64_t run = said.at("run");
  if (what == "again") {
    from.run = run;
    from.is_ready = run == run_;
    if (own_ != 0) change_plan(JobPlan::parse(said.at("plan")));
  } else if (run != run_) {
    return;
  } else if (what == "refused" && server_ == nullptr) {
    refusal_ = error_of(said);
  } else if (what == "refused") {  // while this host's replicas run already
    from.report = HostVerdict{said.at("status"), said.at("text")};
  } else if (what == "plan" && own_ != 0) {
    plan_.emplace(JobPlan::parse(said.at("plan")));
    told_ = said.at("told");
  } else if (what == "ready" || what == "go") {
    from.is_ready = true;
  } else if (what == "set") {
    publish(said.at("key"), said.at("value"), &from);
  } else if (what == "want") {
    const std::string key = said.at("key");
    if (const auto value = server_ != nullptr ? server_->find(key) : std::nullopt) {
      send(from, {{"what", "set"}, {"key", key}, {"value", *value}});
    } else {
      from.wants.insert(key);
    }
  } else if (what == "ask") {
    asked_ = said.at("signal");
    if (own_ == 0) send_all(said, &from);
  } else if (what == "look") {
    hear_look(said, from);
  } else if (what == "seen") {
    hear_seen(said);
  } else if (what == "stall") {
    if (own_ != 0) {
      log_warning(said.at("text").get<std::string>());
    } else {
      warn({said.at("key"), said.at("number"), said.at("times"), said.at("text")});
    }
  } else if (what == "report") {
    from.report =
        HostVerdict{said.at("status"), said.at("text"), said.at("is_lost"), said.at("doubt")};
  } else if (what == "verdict" && own_ != 0) {
    verdict_ = HostVerdict{said.at("status"), said.at("text"), said.at("is_lost"), 0};
  }
}

void Hosts::serve(comm::StoreServer& server) {
  server_ = &server;
  for (const auto& peer : peers_) peer->heard = Clock::now();
  const auto is_local = [](const std::string& key) { return key.starts_with("local/"); };
  server.on_set = [this, is_local](const std::string& key, const std::string& value) {
    if (!is_local(key)) publish(key, value, nullptr);
  };
  server.on_miss = [this, is_local](const std::string& key) {
    if (own_ == 0 || is_local(key) || !wanted_.insert(key).second) return;
    send(*peers_[0], {{"what", "want"}, {"key", key}});
  };
}

// A value that a child of this process (`from` is nullptr) or another host has published.
void Hosts::publish(const std::string& key, const std::string& value, const Peer* from) {
  if (from != nullptr && server_ != nullptr) server_->set(key, value);
  const Json message{{"what", "set"}, {"key", key}, {"value", value}};
  for (const auto& peer : peers_) {
    if (peer.get() == from) continue;
    if (own_ != 0 || peer->wants.erase(key) > 0) send(*peer, message);
  }
}

void Hosts::share(watch::Board& board) {
  board_ = &board;
  for (const auto& [host, request] : std::exchange(looks_of_, {})) answer_look(host, request);
}

void Hosts::want_snapshots() {
  if (board_ == nullptr) return;
  const std::uint64_t wanted = board_->snapshots_wanted();
  if (wanted == last_look_) return;
  std::vector<std::size_t> at;
  for (std::size_t host = 0; host < plan_->layout.hosts().size(); ++host) {
    if (host == own_ || plan_->layout.hosts()[host].workers.size == 0) continue;
    if (looks_at_.insert(host).second) at.push_back(host);
  }
  if (at.empty()) return;
  last_look_ = wanted;
  hear_look({{"what", "look"}, {"of", own_}, {"request", wanted}, {"at", at}}, *peers_[0]);
}

// Host 0 passes a request on to those whom it is for.
void Hosts::hear_look(const Json& look, const Peer& from) {
  const std::size_t of = look.at("of");
  const std::uint64_t request = look.at("request");
  if (own_ != 0 && of == own_) return send(from, look);
  for (const std::size_t host : look.at("at").get<std::vector<std::size_t>>()) {
    if (host == own_) {
      answer_look(of, request);
    } else if (own_ == 0) {
      for (const auto& peer : peers_) {
        if (peer->host == host) send(*peer, look);
      }
    }
  }
}

void Hosts::answer_look(std::size_t host, std::uint64_t request) {
  if (board_ == nullptr) return looks_of_.emplace_back(host, request), void();
  const Range here = plan_->layout.hosts()[own_].workers;
  const Json seen{
      {"what", "seen"},
      {"by", own_},
      {"for", host},
      {"request", request},
      {"snapshot", board_->snapshot(static_cast<int>(here.offset), static_cast<int>(here.size))}};
  if (own_ == 0) return hear_seen(seen);
  send(*peers_[0], seen);
}

// Host 0 passes an answer on to the host that it is for.
void Hosts::hear_seen(const Json& seen) {
  const std::size_t host = seen.at("for");
  if (host == own_) {
    looks_at_.erase(seen.at("by").get<std::size_t>());
    if (board_ != nullptr) board_->show(seen.at("snapshot").get<std::string>(), seen.at("request"));
    return;
  }
  for (const auto& peer : peers_) {
    if (own_ == 0 && peer->host == host) send(*peer, seen);
  }
}

void Hosts::warn(const Stall& stall) {
  const Json message{{"what", "stall"},
                     {"key", stall.key},
                     {"number", stall.number},
                     {"times", stall.times},
                     {"text", stall.text}};
  if (own_ != 0) return send(*peers_[0], message);
  if (!stalls_.emplace(stall.key, stall.number, stall.times).second) return;
  send_all(message);
  log_warning(stall.text);
}

void Hosts::ask(int signal) {
  asked_ = signal;
  send_all({{"what", "ask"}, {"signal", signal}});
}

void Hosts::report(const HostVerdict& own) {
  if (own_report_ && own_report_->status != 0) return;
  own_report_ = own;
  if (own.status != 0) first_failure_ = Clock::now();
  if (own_ != 0) {
    send(*peers_[0], {{"what", "report"},
                      {"status", own.status},
                      {"text", own.text},
                      {"is_lost", own.is_lost},
                      {"doubt", own.doubt}});
  }
  decide();
}

bool Hosts::has_failure() const noexcept {
  if (verdict_) return verdict_->status != 0;
  return std::ranges::any_of(
      peers_, [](const auto& peer) { return peer->report && peer->report->status != 0; });
}

void Hosts::decide() {
  if (verdict_) return;
  if (own_ == 0) return decide_as_first();
  const auto& lost = peers_[0]->report;  // the link to host 0
  const bool is_late = first_failure_ && Clock::now() - *first_failure_ > kVerdictGrace;
  if (!lost && !is_late) return;
  const bool knows_better = own_report_ && own_report_->status != 0 && own_report_->doubt == 0;
  verdict_ = lost && !knows_better ? lost : own_report_;
}

void Hosts::decide_as_first() {
  std::vector<const HostVerdict*> reports;
  if (own_report_) reports.push_back(&*own_report_);
  for (const auto& peer : peers_) {
    if (peer->report) reports.push_back(&*peer->report);
  }
  const HostVerdict* root = nullptr;
  for (const HostVerdict* each : reports) {
    if (each->status != 0 && (root == nullptr || each->doubt < root->doubt)) root = each;
  }
  if (root != nullptr && !first_failure_) first_failure_ = Clock::now();
  const bool is_well = root == nullptr && reports.size() == peers_.size() + 1;
  const bool is_sure = root != nullptr && (root->doubt == 0 || reports.size() > peers_.size());
  const bool is_late = first_failure_ && Clock::now() - *first_failure_ > kHostsGrace;
  if (!is_well && !is_sure && !is_late) return;
  verdict_ = is_well ? HostVerdict{} : *root;
  send_all({{"what", "verdict"},
            {"status", verdict_->status},
            {"text", verdict_->text},
            {"is_lost", verdict_->is_lost}});
}

void Hosts::send(const Peer& to, Json message) {
  message["run"] = run_;
  to.link->send(encode(message));
}

void Hosts::send_all(const Json& message, const Peer* but) {
  for (const auto& peer : peers_) {
    if (peer.get() != but) send(*peer, message);
  }
}

void Hosts::begin_again(milliseconds timeout, const std::function<void()>& prepare,
                        const StopSignals& stop) {
  during(stop, [&] { meet_again(timeout, prepare); });
}

void Hosts::meet_again(milliseconds timeout, const std::function<void()>& prepare) {
  ++run_;
  server_ = nullptr;
  board_ = nullptr;
  last_look_ = 0;
  looks_at_.clear();
  looks_of_.clear();
  stalls_.clear();
  wanted_.clear();
  asked_ = 0;
  own_report_.reset();
  first_failure_.reset();
  verdict_.reset();
  for (const auto& peer : peers_) {
    peer->is_ready = peer->run == run_;
    peer->wants.clear();
    peer->report.reset();
  }
  if (own_ != 0) {
    send(*peers_[0], Json::object({{"what", "again"}}));
    // Host 0 waits for others that are gone.
    wait(
        Clock::now() + 2 * timeout, [this] { return peers_[0]->is_ready; },
        [this] { return str(peers_[0]->name(), " did not start again"); });
    return try_or_tell(prepare);
  }
  try {
    wait_for_those_left(timeout);
    go_on_without_others();
    prepare();
  } catch (const std::exception& error) {
    send_all(refusal_by(error, text_of(error)));
    flush();
    throw;
  }
  JobPlan plan = *plan_;
  plan.network.reset();
  send_all({{"what", "again"}, {"plan", plan.text()}});
}

// Host 0 waits until those that are there begin again.
void Hosts::wait_for_those_left(milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  const auto is_awaited = [](const auto& peer) { return peer->link->is_open() && !peer->is_ready; };
  while (std::ranges::any_of(peers_, is_awaited)) {
    if (Clock::now() >= deadline) break;
    poll_until(deadline);
    tell_alive();
    for (const auto& peer : peers_) look_at(*peer);
    if (refusal_) std::rethrow_exception(refusal_);
  }
  std::erase_if(peers_, [](const auto& peer) { return !peer->link->is_open() || !peer->is_ready; });
}

// Host 0's plan for the hosts that are left.
void Hosts::go_on_without_others() {
  const auto& hosts = plan_->layout.hosts();
  std::vector<bool> stays(hosts.size(), false);
  stays[0] = true;
  for (const auto& peer : peers_) stays[peer->host] = true;
  std::vector<std::size_t> gone;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    if (!stays[host] && hosts[host].replicas.size > 0) gone.push_back(host);
  }
  if (gone.empty()) return;
  change_plan({plan_->layout.without(stays), plan_->math_threads});
  log_warning(str("goes on without host", gone.size() == 1 ? " " : "s ", join(gone), ": ",
                  counted(plan_->layout.replicas(), "replica"), " on ",
                  counted(plan_->layout.workers(), "worker")));
}

// How this host is reached stays, while there are others.
void Hosts::change_plan(JobPlan plan) {
  if (!peers_.empty()) plan.network = std::move(plan_->network);
  plan_ = std::move(plan);
}

void Hosts::flush() {
  const auto deadline = Clock::now() + kFlush;
  for (;;) {
    std::vector<pollfd> polled;
    for (const auto& peer : peers_) {
      if (!peer->link->is_open()) continue;
      peer->link->progress();
      const pollfd waits = peer->link->polled();
      if ((waits.events & POLLOUT) != 0) polled.push_back({waits.fd, POLLOUT, 0});
    }
    const auto rest = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    if (polled.empty() || rest.count() <= 0) return;
    ::poll(polled.data(), polled.size(), static_cast<int>(rest.count()));
  }
}

}  // namespace lockstep::replicas
