#include "framework/maps/replica_threads.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/ThreadLocalState.h>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/scoped_value.h"
#include "framework/base/text.h"
#include "framework/comm/run_lock.h"
#include "framework/maps/first_failure.h"
#include "framework/maps/kept_threads.h"
#include "framework/maps/machine.h"
#include "framework/maps/tensor_memory.h"
#include "framework/maps/thread_ends.h"
#include "framework/tree/error_place.h"
#include "framework/tree/grad.h"

namespace lockstep::maps {
namespace {

// Kept for this thread's next map outside of a job: new pages cost as much as waking a few threads.
thread_local std::shared_ptr<calls::CallTable> kept_table;

// The parts of the environments of a map's replicas.
struct Plan {
  std::shared_ptr<calls::CallTable> table;  // of a map outside of a job
  std::shared_ptr<groups::LocalReplicas> local;
  std::vector<AxisLevel> outer;
  AxisLevel level;  // its rank is that of the caller's first replica
  std::shared_ptr<comm::Cancellation> cancellation;
  std::int64_t threads;
  bool spans_members = false;
};

std::string title_of(const MapCall& options) {
  std::string backwards;
  for (int i = options.backward ? options.backward->times : 0; i > 0; --i) {
    backwards += "the backward of ";
  }
  return str(backwards, options.map, " over ", names_of(options).text());
}

// The message of a member of a job at the begin and at the end of a map.
struct MemberState {
  std::int64_t replicas;
  std::uint64_t next_node;
};

// Meets the job's other members for one step of the map, and returns how many replicas each runs.
// All members' graphs go on from the highest node.
std::vector<std::int64_t> meet_members(Environment& member, const MapCall& options,
                                       const calls::CallRecord& step, const char* name) {
  const AxisCall call{name, member.levels()[0].axes[0].name, options.where};
  auto& group = replicas_of(call, {}, GroupSizes::any);
  const MemberState own{options.replicas, next_node()};
  group.begin(step);
  const std::vector<MemberState> states = group.all_gather(own);
  group.end();
  std::vector<std::int64_t> counts;
  for (const MemberState& state : states) {
    advance_nodes(state.next_node);
    counts.push_back(state.replicas);
  }
  return counts;
}

// Asks every member of the job how many replicas it runs, and numbers them in the members' order.
void span_job(Environment& member, const MapCall& options, Plan& plan) {
  const std::string& differentiated = options.differentiated;
  const Key fingerprint = Key(0)
                              .fold(title_of(options))
                              .fold(options.backward ? options.backward->map_call : 0)
                              .fold(differentiated);
  const calls::CallRecord step{
      fingerprint.bits(), text_of(options) + (differentiated.empty() ? "" : ", " + differentiated)};
  const auto counts = meet_members(member, options, step, options.map);
  const auto own = counts.begin() + member.levels()[0].rank;
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  plan.level.rank = std::accumulate(counts.begin(), own, std::int64_t{0});
  if (plan.level.axes.size() == 1) plan.level.axes[0].size = total;
  if (plan.level.size() != total) {
    throw ValueError(str(text_of(options), ": the mesh has ", plan.level.size(),
                         " replicas, the job's members run ", join(counts, " + "), " = ", total));
  }
  for (std::size_t caller = 0; caller < counts.size(); ++caller) {
    const auto count = static_cast<std::size_t>(counts[caller]);
    const int worker = member.levels()[0].workers[caller];
    plan.level.workers.insert(plan.level.workers.end(), count, worker);
    plan.level.callers.insert(plan.level.callers.end(), count, static_cast<std::int64_t>(caller));
  }
  plan.spans_members = counts.size() > 1;
}

Plan plan_of(const MapCall& options, Environment* caller) {
  const std::uint64_t map_call = options.backward ? options.backward->map_call : 1;
  Plan plan{nullptr, nullptr, {}, {options.axes, 0, map_call, {}}, nullptr, 1};
  plan.cancellation = std::make_shared<comm::Cancellation>(
      caller != nullptr ? caller->member().cancellation : nullptr);
  const bool shares_callers = own_math_threads() > 0 && options.threads_per_replica == 0;
  plan.threads = shares_callers ? std::max<std::int64_t>(1, own_math_threads() / options.replicas)
                                : math_threads(options.threads_per_replica, options.replicas);
  if (caller == nullptr) {
    plan.table = std::exchange(kept_table, nullptr);
    if (!plan.table) plan.table = std::make_shared<calls::CallTable>(1);
    plan.local = std::make_shared<groups::LocalReplicas>(0, nullptr, plan.table);
    return plan;
  }
  plan.local = caller->local_replicas();
  if (!options.backward) plan.level.map_call = caller->next_map_call(spans_job(options));
  if (spans_job(options)) {
    span_job(*caller, options, plan);
    return plan;
  }
  for (const NamedAxis& axis : options.axes) {
    if (caller->binds(axis.name)) {
      throw ValueError(str(text_of(options), ": axis '", axis.name,
                           "' is bound already by a map around it (bound: ", caller->bound_names(),
                           "); nested axes need different names"));
    }
  }
  plan.outer = caller->levels();
  return plan;
}

}  // namespace

std::string text_of(const MapCall& options) {
  const bool counted = options.backward && options.backward->number > 0;
  return str(title_of(options), " at ", place_of(options.where),
             counted ? str(" (call ", options.backward->number, ")") : "");
}

AxisNames names_of(const MapCall& options) {
  return AxisNames(mapped(options.axes, &NamedAxis::name));
}

bool spans_job(const MapCall& options) {
  return in_job() && !options.lanes;
}

bool in_job() noexcept {
  const Environment* const here = current_environment();
  return here != nullptr && here->levels().back().map_call == kJobCall;
}

void run_as(Environment& environment, const std::function<void()>& body) {
  groups::Member& member = environment.member();
  const EnvironmentScope scope(&environment);
  try {
    member.cancellation->check();
    body();
    member.slot->returned();
  } catch (const CollectiveMismatch& error) {
    member.slot->fell_out(error.verdict());
    // All replicas of the map are out of step, also if the mismatch is of a map in one of them.
    member.cancellation->cancel(std::current_exception());
    throw;
  } catch (...) {
    member.slot->threw(typed_text(std::current_exception()));
    throw;
  }
}

void run_replica_threads(const MapCall& options,
                         const std::function<void(const ReplicaThread&)>& body,
                         const Identities& identities) {
  if (refusal_here != nullptr) throw_refused(text_of(options));
  Environment* const caller = current_environment();
  const Plan plan = plan_of(options, caller);

  std::vector<std::unique_ptr<Environment>> environments;
  for (std::int64_t local = 0; local < options.replicas; ++local) {
    auto levels = plan.outer;
    levels.push_back(plan.level);
    levels.back().rank += local;
    environments.push_back(std::make_unique<Environment>(
        plan.local, std::move(levels), plan.cancellation, options.timeout,
        identities.empty() ? nullptr : identities[static_cast<std::size_t>(local)]));
  }
  if (caller != nullptr) {
    caller->member().slot->enter_map(calls::CallRecord{0, text_of(options)},
                                     static_cast<int>(options.replicas));
  }

  TensorMemory::prepare();
  const at::ThreadLocalState callers_state;
  const int callers_grad_depth = grad_depth;
  // In a replica's own map, the replica's number will stand before it.
  const bool is_inner = caller != nullptr && !spans_job(options);
  FirstFailure failure(
      plan.level.rank,
      [&](const std::string& reason) {
        plan.cancellation->cancel(reason);
        plan.local->wake_all();
      },
      is_inner ? str(" of ", names_of(options).text()) : "");
  comm::RunLock own_lock;
  comm::RunLock* const run_lock =
      !options.lanes ? nullptr
                     : (comm::current_run_lock() != nullptr ? comm::current_run_lock() : &own_lock);
  const std::string map = text_of(options);
  const auto run_replica = [&](std::int64_t local) {
    const at::ThreadLocalStateGuard same_state(callers_state);
    const ScopedValue same_depth(grad_depth, callers_grad_depth);
    set_math_threads(plan.threads);
    const comm::RunLockScope running(run_lock);
    const ThreadEnds ends(str("replica ", plan.level.rank + local, " of ", map));
    Environment& environment = *environments[static_cast<std::size_t>(local)];
    environment.member().run_lock = run_lock;
    run_as(environment, [&] { body({local, plan.level.rank, plan.spans_members, &environment}); });
  };
  {
    const comm::RunLockRelease others_may_run;
    run_in_kept_threads(options.replicas, next_node(), failure, run_replica);
  }
  if (caller != nullptr) caller->member().slot->leave_map();
  // The slots show how the replicas ended until the replicas of all processes have ended.
  if (plan.spans_members) {
    auto& timeout = caller->member().timeout;
    const ScopedValue longer(timeout, std::max(timeout.load(), options.timeout));
    const std::string step = "the end of " + title_of(options);
    try {
      (void)meet_members(*caller, options, {Key(0).fold(step).bits(), step}, step.c_str());
    } catch (...) {
      failure.rethrow();
      throw;
    }
  }
  failure.rethrow();
  if (plan.table && plan.table->is_reusable()) kept_table = plan.table;
}

}  // namespace lockstep::maps
