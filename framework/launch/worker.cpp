#include "framework/launch/worker.h"

#include <optional>
#include <utility>

#include "framework/base/errors.h"
#include "framework/comm/gloo/gloo_communicator.h"
#include "framework/comm/host_members.h"
#include "framework/comm/link_speed.h"
#include "framework/comm/network/tcp_communicator.h"
#include "framework/comm/shared/shared_communicator.h"
#include "framework/maps/machine.h"
#include "framework/maps/replica_threads.h"

namespace lockstep::launcher {
namespace {

constexpr std::chrono::milliseconds kLookAround{100};

std::shared_ptr<comm::Communicator> make_communicator(
    const LaunchOptions& options, const JobPlan& plan, std::int64_t index,
    const std::shared_ptr<comm::Store>& store, const std::shared_ptr<comm::HostMemory>& memory) {
  // LocalReplicas::end_of_wait ends waits first, with the names of the absent: this limit is later.
  constexpr std::chrono::seconds kLater{10};
  const auto rank = static_cast<int>(index);
  const auto size = static_cast<int>(plan.layout.workers());
  comm::ConnectOptions how;
  how.timeout = plan.in_turns(options.timeout) + kLater;
  how.connect_timeout = options.timeout;
  if (options.backend == Backend::gloo) return comm::connect_gloo(store, rank, size, how);
  if (!plan.network) return comm::connect_shared(memory, store, rank, size, how);
  const Range here = plan.layout.hosts()[plan.layout.host_of_worker(index)].workers;
  auto local = comm::connect_shared(memory, store, rank - static_cast<int>(here.offset),
                                    static_cast<int>(here.size), how);
  const std::vector<int> host_of = plan.layout.hosts_of_workers();
  const auto first = static_cast<int>(plan.layout.replicas_of_worker(index).offset);
  auto network = comm::connect_tcp(store, rank, size, *plan.network, how,
                                   {memory->recorder()->take(first, "network"), host_of});
  auto world = comm::join_hosts(std::move(local), std::move(network), host_of);
  std::optional<comm::LinkSpeed> speed;  // none: to be measured
  if (options.hosts.link != "auto") speed = comm::LinkSpeed::parse(options.hosts.link);
  comm::set_up_links(*world, host_of, speed);
  return world;
}

}  // namespace

Worker::Worker(const LaunchOptions& options, const JobPlan& plan, std::int64_t index,
               const std::shared_ptr<comm::Store>& store,
               const std::shared_ptr<comm::HostMemory>& memory)
    : replicas_(plan.layout.replicas_of_worker(index)),
      math_threads_(plan.math_threads),
      run_lock_(options.timeout),
      communicator_(make_communicator(options, plan, index, store, memory)),
      local_(std::make_shared<groups::LocalReplicas>(static_cast<int>(index), communicator_,
                                                     memory->call_table())),
      recorder_(memory->recorder()) {
  AxisLevel level{{{options.axis_name, options.replicas}}, 0, maps::kJobCall};
  for (std::int64_t worker = 0; worker < plan.layout.workers(); ++worker) {
    const auto count = static_cast<std::size_t>(plan.layout.replicas_of_worker(worker).size);
    level.workers.insert(level.workers.end(), count, static_cast<int>(worker));
  }
  for (std::int64_t local = 0; local < replicas_.size; ++local) {
    level.rank = replicas_.offset + local;
    places_.push_back(std::make_unique<Environment>(local_, std::vector<AxisLevel>{level},
                                                    cancellation_, plan.in_turns(options.timeout)));
    if (replicas_.size > 1) places_.back()->member().run_lock = &run_lock_;
  }
}

void Worker::run(std::int64_t replica, const std::function<void()>& function) {
  Environment& place = *places_[static_cast<std::size_t>(replica - replicas_.offset)];
  const at::ThreadLocalStateGuard same_state(callers_state_);
  maps::set_math_threads(math_threads_);
  const auto track = recorder_->take(static_cast<int>(replica), "replica");
  const timeline::TrackScope recorded(track.get());
  const comm::RunLockScope running(replicas_.size > 1 ? &run_lock_ : nullptr);
  maps::run_as(place, function);
}

void Worker::end(const std::exception_ptr& error, const std::string& reason) {
  const bool is_mismatch = error_kind(error) == ErrorKind::mismatch;
  is_mismatch ? cancellation_->cancel(error) : cancellation_->cancel(reason);
  local_->wake_all();
  communicator_->abort(reason);
}

RunningThreads::RunningThreads(const Range& indices, maps::FirstFailure& failure,
                               const std::function<void(std::int64_t)>& body)
    : failure_(failure), running_(indices.size) {
  const auto run = [this, body](std::int64_t index) {
    if (const auto error = thrown_by([&] { body(index); })) failure_.record(index, error);
    end(1);
  };
  maps::add_threads(threads_, indices.size, failure, run, indices.offset);
  end(indices.size - static_cast<std::int64_t>(threads_.size()));
}

RunningThreads::~RunningThreads() {
  for (std::thread& thread : threads_) thread.join();
}

bool RunningThreads::wait(std::chrono::milliseconds grace, const std::function<void()>& look,
                          const std::function<bool()>& enough) {
  MutexLock lock(mutex_);
  const auto over = [&]()
                        LOCKSTEP_REQUIRES(mutex_) { return running_ == 0 || failure_.happened(); };
  while (look && !changed_.wait_for(lock, kLookAround, over)) {
    lock.unlock();
    look();
    lock.lock();
  }
  while (!over()) changed_.wait(lock);
  changed_.wait_for(lock, grace,
                    [&]() LOCKSTEP_REQUIRES(mutex_) { return running_ == 0 || enough(); });
  return running_ == 0;
}

void RunningThreads::end(std::int64_t count) {
  const MutexLock lock(mutex_);
  running_ -= count;
  changed_.notify_all();
}

}  // namespace lockstep::launcher
