#include "framework/launch/running_job.h"

#include <algorithm>
#include <chrono>
#include <variant>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/comm/socket_store.h"
#include "framework/launch/stop_signals.h"
#include "framework/launch/worker.h"
#include "framework/maps/first_failure.h"

namespace lockstep::launcher {
namespace {

using std::chrono::milliseconds;

// How long host 0 waits for a better root cause than the first failure that it hears of.
constexpr milliseconds kHostsGrace{800};
// How long another host waits for host 0's decision once it has reported a failure.
constexpr milliseconds kVerdictGrace{1600};

// The prefix of keys that stay on their host.
constexpr const char* kOfHost = "process/";

// A message has room for a piece of a copied call table.
static_assert(calls::TableCopy::kPiece + 1024 <= comm::Link::kLongestMessage);

}  // namespace

timeline::JobTrace::Uses trace_uses(const TraceOptions& options) {
  const auto logged = [](const auto& call) {
    if (const auto thrown = thrown_by(call)) log_warning("the trace: " + maps::typed_text(thrown));
  };
  timeline::JobTrace::Uses uses;
  if (!options.wanted) return uses;
  uses.wanted = [=] {
    std::optional<timeline::TracedSteps> steps;
    logged([&] { steps = options.wanted(); });
    return steps;
  };
  uses.take = [=](const timeline::Trace& trace) { logged([&] { options.take(trace); }); };
  return uses;
}

RunningJob::RunningJob(Hosts& hosts, const LaunchOptions& options, comm::StoreServer& store,
                       calls::CallTable& table)
    : links_(hosts.links),
      options_(options),
      store_(store),
      table_(table),
      layout_(hosts.plan.layout) {
  for (HostLinks::Peer& peer : links_.peers()) peer.silent = Waited();
  store_.on_set = [this](const std::string& key, const std::string& value) {
    if (key.starts_with(kOfHost)) return;
    own() == 0 ? pass_on(key, value) : links_.tell(Published{key, value});
  };
  store_.on_missing = [this](const std::string& key) {
    if (own() == 0 || key.starts_with(kOfHost)) return;
    if (wanted_.insert(key).second) links_.tell(Wanted{key});
  };
  if (!has_hosts()) return;
  const auto workers = mapped(hosts.plan.layout.hosts(), &JobLayout::Host::workers);
  watch_.emplace(
      own(), workers, static_cast<int>(hosts.plan.layout.replicas()), table,
      [this](std::size_t host, const calls::TableMessage& message) { links_.send(host, message); });
}

void RunningJob::trace(const timeline::Recorder& recorder, const TraceOptions& options,
                       std::vector<std::pair<int, pid_t>> workers) {
  timeline::JobTrace::Uses uses = trace_uses(options);
  uses.send = [this](std::size_t host, const timeline::TraceMessage& message) {
    links_.send(host, message);
  };
  trace_.emplace(own(), mapped(layout_.hosts(), &JobLayout::Host::replicas), recorder,
                 std::move(uses));
  trace_->set_workers(std::move(workers));
}

void RunningJob::progress() {
  const auto now = Clock::now();
  const bool holds_up =
      is_held_up_ || std::ranges::any_of(links_.peers(), &HostLinks::Peer::is_held_up);
  const bool is_new = holds_up != (table_.held_up().load() != 0);
  table_.held_up().store(holds_up ? 1 : 0);
  if (is_new || now - told_alive_ >= options_.timeout / 8) {
    told_alive_ = now;
    links_.tell(Alive{own() == 0 ? holds_up : is_held_up_});
  }
  links_.progress();
  while (const auto heard = links_.receive()) {
    try {
      hear(*heard);
    } catch (const DataError& error) {
      heard->from->says_wrong(error);
    }
  }
  for (HostLinks::Peer& peer : links_.peers()) {
    std::string problem = peer.problem;
    if (peer.silent.look() > options_.timeout && problem.empty()) {
      problem =
          str(" has said nothing for ", std::chrono::duration<double>(options_.timeout).count(),
              " s: its launcher stands still, or the network between them is cut");
    }
    if (problem.empty() || verdict_) continue;
    // A job may start again without one of its hosts, but not without host 0.
    const Ending lost{3, peer.name() + problem, own() == 0, 0};
    // Host 0 may only have been paused, and then names the same cause.
    if (reports_.try_emplace(peer.host, lost).second && own() != 0) links_.tell(lost);
  }
  if (watch_) watch_->progress();
  if (trace_) trace_->progress();
  decide();
}

void RunningJob::hear(const HostLinks::Heard& heard) {
  const auto& [peer, message] = heard;
  const std::size_t from = peer->host;
  if (own() == 0 && std::holds_alternative<Asked>(message)) links_.tell(message, peer);
  if (const auto* const published = std::get_if<Published>(&message)) {
    store_.set(published->key, published->value);
    if (own() == 0) pass_on(published->key, published->value);
  } else if (const auto* const alive = std::get_if<Alive>(&message)) {
    peer->is_held_up = alive->is_held_up;
  } else if (const auto* const wanted = std::get_if<Wanted>(&message)) {
    take_wanted(from, wanted->key);
  } else if (const auto* const asked = std::get_if<Asked>(&message)) {
    asked_ = asked->signal;
  } else if (const auto* const said = std::get_if<calls::TableMessage>(&message)) {
    if (watch_) watch_->hear(from, *said);
  } else if (const auto* const traced = std::get_if<timeline::TraceMessage>(&message)) {
    if (trace_) trace_->hear(from, *traced);
  } else if (const auto* const stall = std::get_if<calls::Stall>(&message)) {
    own() == 0 ? warn(*stall) : log_warning(stall->text);
  } else if (const auto* const ending = std::get_if<Ending>(&message)) {
    (own() == 0 ? reports_[from] : verdict_.emplace()) = *ending;
  } else if (const auto* const refused = std::get_if<Refused>(&message)) {
    const int signal = refused->signal;
    reports_[from] = {signal != 0 ? status_of_stop(signal) : traits_of(refused->kind).exit_status,
                      refused->text};
  }
}

void RunningJob::take_wanted(std::size_t from, const std::string& key) {
  if (const auto value = store_.find(key)) return links_.send(from, Published{key, *value});
  awaited_[key].push_back(from);
}

// Sends the value to the hosts that wait for it.
void RunningJob::pass_on(const std::string& key, const std::string& value) {
  for (const std::size_t host : awaited_[key]) links_.send(host, Published{key, value});
  awaited_.erase(key);
}

void RunningJob::ask(int signal) {
  asked_ = signal;
  links_.tell(Asked{signal});
}

void RunningJob::warn(const calls::Stall& stall) {
  if (own() != 0) return links_.tell(stall);
  // Each host reports the same call: one warning is enough.
  if (!stalls_.emplace(stall.key, stall.number, stall.times).second && has_hosts()) return;
  links_.tell(stall);
  tell_stall(stall.text, options_);
}

void RunningJob::report(const Ending& ending) {
  if (trace_) trace_->end();
  const auto before = reports_.find(own());
  if (before != reports_.end() && before->second.status != 0) return;
  reports_[own()] = ending;
  if (own() != 0) links_.tell(ending);
  decide();
}

bool RunningJob::has_failure() const noexcept {
  if (verdict_) return verdict_->status != 0;
  return std::ranges::any_of(reports_, [&](const auto& report) {
    return report.first != own() && report.second.status != 0;
  });
}

// Host 0 decides for all. Another host waits for that, unless it has lost host 0.
void RunningJob::decide() {
  if (verdict_) return;
  const Ending* root = nullptr;  // the least doubtful report, this host's own first
  const auto consider = [&](const Ending& report) {
    if (report.status != 0 && (root == nullptr || report.doubt < root->doubt)) root = &report;
  };
  if (reports_.contains(own())) consider(reports_.at(own()));
  for (const auto& [host, report] : reports_) consider(report);
  if (root != nullptr && !first_failure_) first_failure_.emplace();
  const auto grace = own() == 0 ? kHostsGrace : kVerdictGrace;
  const bool is_late = first_failure_ && first_failure_->look() > grace;
  const bool is_certain = own() == 0 && root != nullptr && root->doubt == 0;
  const bool has_all = own() == 0 ? reports_.size() > links_.peers().size() : reports_.contains(0);
  const bool is_waited_for = root == nullptr && trace_ && trace_->is_pending();
  if ((!has_all || is_waited_for) && !is_certain && !is_late) return;
  verdict_ = root == nullptr ? Ending{} : *root;
  if (own() != 0) return;
  links_.tell(*verdict_);
  if (!trace_) return;
  trace_->end();
  trace_->close();
}

}  // namespace lockstep::launcher
