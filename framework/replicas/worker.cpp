#include "framework/replicas/worker.h"

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/comm/gloo/gloo_communicator.h"
#include "framework/comm/shared/shared_communicator.h"
#include "framework/groups/local_replicas.h"
#include "framework/replicas/machine.h"
#include "framework/replicas/replica_threads.h"
#include "framework/replicas/thread_ends.h"
#include "framework/replicas/worker_process.h"

namespace lockstep {
namespace {

std::shared_ptr<Communicator> connect(const LaunchOptions& options, std::int64_t index,
                                      const std::shared_ptr<Store>& store,
                                      const std::shared_ptr<HostMemory>& memory) {
  // Whoever waits is ended with the names of the absent first: see LocalReplicas::verdict.
  constexpr std::chrono::seconds kLater{10};
  const auto rank = static_cast<int>(index);
  const auto size = static_cast<int>(options.workers);
  ConnectOptions how;
  how.timeout = patience_of(options) + kLater;
  how.connect_timeout = options.timeout;
  return options.backend == Backend::gloo ? connect_gloo(store, rank, size, how)
                                          : connect_shared(memory, store, rank, size, how);
}

}  // namespace

std::chrono::milliseconds patience_of(const LaunchOptions& options) {
  const std::int64_t most = shard(options.replicas, options.workers, 0).size;
  return options.workers == 1 ? options.timeout : options.timeout * most;
}

Worker::Worker(const LaunchOptions& options, std::int64_t index,
               const std::shared_ptr<Store>& store, const std::shared_ptr<HostMemory>& memory,
               int report)
    : replicas_(shard(options.replicas, options.workers, index)),
      report_(report),
      math_threads_(math_threads(options.threads_per_replica, options.replicas)),
      run_lock_(options.timeout),
      communicator_(connect(options, index, store, memory)),
      local_(std::make_shared<LocalReplicas>(static_cast<int>(index), communicator_,
                                             memory->board())) {
  AxisLevel level{{{options.axis_name, options.replicas}}, 0, kJobCall};
  for (std::int64_t worker = 0; worker < options.workers; ++worker) {
    const Shard its = shard(options.replicas, options.workers, worker);
    const auto count = static_cast<std::size_t>(its.size);
    level.workers.insert(level.workers.end(), count, static_cast<int>(worker));
  }
  for (std::int64_t local = 0; local < replicas_.size; ++local) {
    level.rank = replicas_.offset + local;
    places_.push_back(std::make_unique<Environment>(local_, std::vector<AxisLevel>{level},
                                                    cancellation_, patience_of(options)));
    if (replicas_.size > 1) places_.back()->member().run_lock = &run_lock_;
  }
}

void Worker::run(std::int64_t replica, const std::function<void()>& function) {
  Environment& place = *places_[static_cast<std::size_t>(replica - replicas_.offset)];
  const at::ThreadLocalStateGuard same_state(callers_state_);
  set_math_threads(math_threads_);
  const RunLockScope running(replicas_.size > 1 ? &run_lock_ : nullptr);
  const auto tell = [&](const std::string& text) {
    send_report(report_, {replica, "Error", text, 1});
  };
  run_as(place, [&] { run_in_one_process(str("replica ", replica), function, tell); });
}

void Worker::end(const std::exception_ptr& error, const std::string& reason) {
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveMismatch&) {
    cancellation_->cancel(error);
  } catch (...) {
    cancellation_->cancel(reason);
  }
  local_->wake_all();
  communicator_->abort(reason);
}

void Worker::part() {
  communicator_->barrier();
}

}  // namespace lockstep
