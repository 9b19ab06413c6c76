#include "trainers/run/memory_report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/memory.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/base/text_table.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/psum.h"
#include "framework/data/sampler.h"
#include "framework/launch/launch.h"
#include "framework/maps/pmap.h"
#include "framework/maps/tensor_memory.h"
#include "trainers/config/config_options.h"
#include "trainers/run/evaluate.h"

namespace lockstep {
namespace {

struct Category {
  const char* name;
  std::int64_t MemoryUse::*bytes;
};

constexpr Category kCategories[] = {{"parameters", &MemoryUse::parameters},
                                    {"gradients", &MemoryUse::gradients},
                                    {"optimizer state", &MemoryUse::optimizer_state},
                                    {"communication", &MemoryUse::communication},
                                    {"checkpoint", &MemoryUse::checkpoint}};

ReplicaPlacement placement_of(const LaunchOptions& launch) {
  const std::int64_t workers = launch.workers == 0 ? launch.replicas : launch.workers;
  // Before the hosts meet, this one knows its own number at most.
  const HostOptions& hosts = launch.hosts;
  const bool is_only_host = hosts.count == 1;
  Range here = shard(launch.replicas, hosts.count, is_only_host ? 0 : hosts.rank);
  if (!is_only_host && hosts.replicas > 0) {
    const std::int64_t before = std::min(hosts.rank * hosts.replicas, launch.replicas);
    here = {std::min(before, launch.replicas - hosts.replicas), hosts.replicas};
  }
  const std::int64_t workers_here =
      is_only_host ? workers : shard(workers, hosts.count, hosts.rank).size;
  return {.replicas = launch.replicas,
          .workers = workers,
          .here = here,
          .workers_here = std::min(here.size, workers_here),
          .shares_memory = launch.backend != Backend::gloo || (is_only_host && workers == 1)};
}

// The bytes that `samples` take, of `values` each. At most kMost: a larger product overflows.
std::int64_t batch_bytes(std::int64_t samples, double values, double bytes) {
  constexpr double kMost = 1e18;
  return static_cast<std::int64_t>(std::min(static_cast<double>(samples) * values * bytes, kMost));
}

std::int64_t input_bytes(const SampleType& type, std::int64_t samples) {
  return batch_bytes(samples, static_cast<double>(type.input.values()),
                     static_cast<double>(c10::elementSize(type.input.dtype)));
}

// Of each of some microbatches one after the other, with so many samples. ValueError for more than
// `most`, and if the first ones took long.
std::vector<std::int64_t> measured_activations(const Config& config, const DataSets& data,
                                               const std::vector<std::int64_t>& samples,
                                               std::int64_t most) {
  std::vector<std::int64_t> bytes;
  const auto measure = [&] {
    const auto model = make_whole_model(config, data.train->type());
    ZeroTrainer trainer(*model, zero_options(config, *model));
    const Objective objective = make_objective(config, data.train->type());
    const auto begin = std::chrono::steady_clock::now();
    for (const std::int64_t count : samples) {
      const auto waited = std::chrono::duration_cast<std::chrono::seconds>(
          std::chrono::steady_clock::now() - begin);
      require(waited < std::chrono::seconds(15), "a few samples take ", waited.count(), " s");
      const BatchSamples first{*data.train, consecutive(std::int64_t{0}, count), "training"};
      const Batch batch = made_batch(first);
      const maps::TensorMemory memory(most);
      trainer.backward(
          training_loss(config, objective, *model, batch, [&] { return first; }).trained);
      bytes.push_back(memory.peak());
    }
  };
  pmap(measure, {.axis_name = config.launch.axis_name, .axis_size = 1})();
  return bytes;
}

// A batch may be too large for this host, or slow. So a few samples are measured, after as many
// that make what stays, and then twice as many: each further sample takes as much as these did.
// ValueError if even they do not fit.
std::int64_t predicted_activations(const Config& config, const DataSets& data,
                                   std::int64_t available) {
  const std::int64_t samples = std::min(config.data_use.batch_size,
                                        shard(data.train->size(), config.launch.replicas, 0).size);
  const std::int64_t few = std::min<std::int64_t>(samples, 4);
  const std::int64_t twice = std::min(samples, 2 * few);
  const Config own = alone(config, 3);
  const MemoryUse use = predicted_memory(own, data).host;
  // The model's own values and the inputs of the largest batch that is measured count, too.
  const std::int64_t needed = use.total() + use.parameters + input_bytes(data.train->type(), twice);
  require(needed <= available / 2, "a replica alone, which shows them, takes ",
          text_of_bytes(needed));
  const auto bytes = measured_activations(own, data, {few, few, twice}, (available - needed) / 2);
  if (samples == twice) return bytes[2];
  return bytes[2] + (bytes[2] - bytes[1]) / (twice - few) * (samples - twice);
}

// What comes on top of a replica's state whatever the model is: an epoch's order of samples, a
// microbatch's inputs, and what its outputs are at least.
struct BatchMemory {
  std::int64_t order;
  std::int64_t inputs;
  std::int64_t outputs;
};

BatchMemory batch_memory(const Config& config, const DataSets& data) {
  const SamplerOptions sampler = sampler_options(config, data);
  const SampleType type = data.train->type();
  const std::int64_t samples =
      std::min(config.data_use.batch_size, shard(sampler.size, config.launch.replicas, 0).size);
  const double outputs = static_cast<double>(std::max<std::int64_t>(type.target.values(), 1)) *
                         static_cast<double>(std::max<std::int64_t>(type.classes, 1));
  return {.order = Sampler::bytes(sampler),
          .inputs = input_bytes(type, samples),
          .outputs = batch_bytes(samples, outputs, sizeof(float))};
}

// What this host's largest process maps at least of what a limit counts.
std::int64_t mapped_by_process(const Config& config, const HostMemoryUse& use,
                               const BatchMemory& batch, const MemoryLimit& limit) {
  const ReplicaPlacement placement = placement_of(config.launch);
  const bool is_only_one = config.launch.mode == LaunchMode::threads;
  const MemoryUse& part = is_only_one ? use.host : use.largest;
  const std::int64_t running = placement.workers_here;
  const std::int64_t processes = is_only_one ? 1 : std::max<std::int64_t>(1, running);
  const std::int64_t replicas = ceil_div(placement.here.size, processes);
  const std::int64_t parts = is_only_one ? 1 : replicas;
  const std::int64_t state = part.optimizer_state + part.checkpoint;
  const std::int64_t reached = part.parameters + part.gradients + part.communication;
  // Replicas of several workers reach each other's values and gradients in memory that they share.
  const bool is_counted = limit.counts_shared || !placement.shares_memory || placement.workers == 1;
  return parts * state +
         (is_counted ? parts * (reached - part.shared_parameters) + part.shared_parameters : 0) +
         replicas * batch.order + running / processes * (batch.inputs + batch.outputs);
}

// Why one of this host's processes can't map what it takes; "" if it can.
std::string lack_of_process(const Config& config, const HostMemoryUse& use,
                            const BatchMemory& batch) {
  for (const MemoryLimit& limit : memory_limits()) {
    const std::int64_t needed = mapped_by_process(config, use, batch, limit);
    if (std::cmp_less_equal(needed, limit.left())) continue;
    return str("a process of it takes ", text_of_bytes(needed),
               " at least, beside other activations and data, and of the ",
               text_of_bytes(limit.bytes), " of ", limit.name, " that it may have ",
               text_of_bytes(limit.left()), " are left");
  }
  return "";
}

// All that is known of a job's memory before its model runs.
struct Prediction {
  HostMemoryUse use;
  BatchMemory batch;  // of a replica
  BatchMemory here;   // of all of this host; batches of those that compute at one time
  std::int64_t running_here;
  std::int64_t most;  // on this host
  std::int64_t available;
  std::string lack;  // of a process
};

Prediction predict(const Config& config, const DataSets& data) {
  const HostMemoryUse use = predicted_memory(config, data);
  const BatchMemory batch = batch_memory(config, data);
  const ReplicaPlacement placement = placement_of(config.launch);
  const std::int64_t running = placement.workers_here;
  const BatchMemory here{.order = batch.order * placement.here.size,
                         .inputs = batch.inputs * running,
                         .outputs = batch.outputs * running};
  return {.use = use,
          .batch = batch,
          .here = here,
          .running_here = running,
          .most = std::max(use.host.total() + here.order + here.inputs + here.outputs,
                           use.host.at_start()),
          .available = static_cast<std::int64_t>(memory_of_host()),
          .lack = lack_of_process(config, use, batch)};
}

}  // namespace

HostMemoryUse predicted_memory(const Config& config, const DataSets& data, const LinkCost& link) {
  const auto model = make_model(config, data.train->type());
  const ZeroOptions options = zero_options(config, *model);
  ReplicaPlacement placement = placement_of(config.launch);
  placement.link = link;
  HostMemoryUse use = predicted_memory(*model, options, placement);
  if (config.checkpoint.saves()) {
    const HostMemoryUse saved = predicted_checkpoint(*model, options, placement);
    use.largest.checkpoint = saved.largest.checkpoint;
    use.host.checkpoint = saved.host.checkpoint;
  }
  return use;
}

void check_memory(const Config& config, const DataSets& data) {
  const Prediction job = predict(config, data);
  const char* const advice =
      ". A smaller model, fewer replicas or a higher parallel.zero_stage need less";
  require(job.lack.empty(), "this job does not fit: ", job.lack, advice);
  if (job.most <= job.available) return;
  auto parts = mapped(kCategories, [&](const Category& category) {
    return str(category.name, " ", text_of_bytes(job.use.host.*category.bytes));
  });
  if (job.here.order > 0) parts.push_back(str("order of samples ", text_of_bytes(job.here.order)));
  parts.push_back(str("a batch's inputs ", text_of_bytes(job.here.inputs)));
  parts.push_back(str("its outputs ", text_of_bytes(job.here.outputs)));
  throw ValueError(str("this job does not fit: on this host it takes ", text_of_bytes(job.most),
                       " (", join(parts), ") beside other activations and data, and ",
                       text_of_bytes(job.available), " of memory are left", advice));
}

std::string prediction_text(const Config& config, const DataSets& data, const char* ending) {
  const auto model = make_model(config, data.train->type());
  const std::int64_t count = sum_of(model->parameters(), &at::Tensor::numel);
  Prediction job = predict(config, data);
  const auto& [largest, host] = job.use;
  TextTable rows{{"", "a replica", "the host"}};
  const auto add_row = [&](const std::string& name, std::int64_t replica, std::int64_t of_host) {
    rows.push_back({name, text_of_bytes(replica), text_of_bytes(of_host)});
  };
  for (const Category& category : kCategories) {
    const bool is_common =
        category.bytes == &MemoryUse::parameters && largest.shared_parameters > 0;
    add_row(str(category.name, is_common ? " (once)" : ""), largest.*category.bytes,
            host.*category.bytes);
  }
  add_row("in all", largest.total(), host.total());
  add_row("at the start", largest.at_start(), host.at_start());
  if (job.here.order > 0) add_row("order of samples", job.batch.order, job.here.order);
  add_row("a batch's inputs", job.batch.inputs, job.here.inputs);
  std::string unknown;
  if (job.most <= job.available && job.lack.empty()) {
    try {
      const std::int64_t activations =
          predicted_activations(config, data, static_cast<std::int64_t>(available_memory()));
      const std::int64_t of_host = activations * job.running_here;
      add_row("activations", activations, of_host);
      job.most = std::max(job.most, host.total() + job.here.order + job.here.inputs + of_host);
    } catch (const ValueError& error) {
      // One replica alone may have too few samples for a model's statistics.
      unknown = str("  activations are not known: ", error.what(), "\n");
    }
  }
  std::string text =
      str(counted(count, "parameter"), ", ", counted(config.launch.replicas, "replica"),
          ", ZeRO stage ", config.zero.stage, ", optimizer ", config.zero.optimizer.name,
          ". Memory:\n", table_text(rows, "lr", "  "), unknown);
  if (job.most > job.available) {
    text += str("This host has ", text_of_bytes(job.available), " left: the job does not fit.\n");
  }
  if (!job.lack.empty()) text += str("The job does not fit: ", job.lack, ".\n");
  return str(text, "Activations are of a microbatch. Data and LibTorch itself come on top.", ending,
             "\n");
}

namespace {

// The config of the job as it is now: hosts may be lost. `workers`: of each replica its host and
// its process.
Config config_now(Config config, const at::Tensor& workers) {
  std::set<std::pair<std::int64_t, std::int64_t>> processes;
  std::map<std::int64_t, std::int64_t> replicas;  // by host
  for (const at::Tensor& worker : workers.unbind()) {
    const auto host = worker[0].item<std::int64_t>();
    processes.emplace(host, worker[1].item<std::int64_t>());
    ++replicas[host];
  }
  if (std::ssize(replicas) == config.launch.hosts.count) return config;
  config.launch.hosts.count = std::ssize(replicas);
  config.launch.hosts.rank = 0;
  config.launch.hosts.replicas = replicas.begin()->second;
  config.launch.workers = std::ssize(processes);
  return config;
}

}  // namespace

MemoryReport memory_report(const Config& config, const DataSets& data, const ZeroTrainer& trainer,
                           const ReplicaMemory& replica) {
  const AxisNames axis(config.launch.axis_name);
  MemoryUse own = trainer.memory();
  own.checkpoint = replica.checkpoint;
  const auto of_all = [&](const auto& over, std::int64_t parameters) {
    const at::Tensor bytes =
        over(at::tensor({parameters, own.gradients, own.optimizer_state, own.communication,
                         own.checkpoint, own.initialization}));
    return MemoryUse{.parameters = bytes[0].item<std::int64_t>(),
                     .gradients = bytes[1].item<std::int64_t>(),
                     .optimizer_state = bytes[2].item<std::int64_t>(),
                     .communication = bytes[3].item<std::int64_t>(),
                     .checkpoint = bytes[4].item<std::int64_t>(),
                     .initialization = bytes[5].item<std::int64_t>()};
  };
  const std::int64_t is_reported = launch_host() == 0 ? 1 : 0;
  HostMemoryUse measured{
      of_all([&](const at::Tensor& bytes) { return pmax(is_reported * bytes, axis); },
             own.parameters),
      of_all([&](const at::Tensor& bytes) { return psum(is_reported * bytes, axis); },
             own.parameters - own.shared_parameters)};
  // What replicas hold together counts once.
  const double share =
      static_cast<double>(is_reported * own.shared_parameters) / static_cast<double>(own.holders);
  measured.host.parameters +=
      std::llround(psum(at::zeros({}, at::kDouble).fill_(share), axis).item<double>());
  const at::Tensor worker = at::tensor({std::int64_t{launch_host()}, std::int64_t{::getpid()}});
  const at::Tensor workers = all_gather(worker, axis);
  // Replicas of this process.
  const auto here = workers.eq(worker).all(/*dim=*/1).sum().item<double>();
  const double grown =
      (static_cast<double>(resident_memory()) - static_cast<double>(replica.resident_at_start)) /
      here;
  const auto reported = grown * static_cast<double>(is_reported);
  const double resident = psum(at::zeros({}, at::kDouble).fill_(reported), axis).item<double>();
  MemoryReport report{.predicted = predicted_memory(config_now(config, workers), data,
                                                    trainer.link_cost().value_or(LinkCost{})),
                      .measured = measured,
                      .resident = static_cast<std::int64_t>(resident)};
  report.rest = report.resident - measured.host.total();
  const at::Tensor own_part =
      at::tensor({std::int64_t{launch_host()}, static_cast<std::int64_t>(grown)});
  for (const at::Tensor& part : all_gather(own_part, axis).unbind()) {
    report.replicas.push_back({part[0].item<std::int64_t>(), part[1].item<std::int64_t>()});
  }
  const at::Tensor activations = at::zeros({}, at::kLong).fill_(replica.activations);
  report.activations = pmax(activations, axis).item<std::int64_t>();
  return report;
}

std::string memory_text(const MemoryReport& report) {
  const auto parts = mapped(kCategories, [&](const Category& category) {
    return str(category.name, " ", text_of_bytes(report.measured.largest.*category.bytes), " (",
               text_of_bytes(report.predicted.largest.*category.bytes), ")");
  });
  return str("memory a replica:    ", join(parts), "; in brackets as predicted\n",
             "memory of the host:  ", text_of_bytes(report.measured.host.total()), " (",
             text_of_bytes(report.predicted.host.total()), ") for these, ",
             text_of_bytes(std::max<std::int64_t>(report.rest, 0)), " more since the start",
             report.activations == 0
                 ? ""
                 : str("; activations of a microbatch ", text_of_bytes(report.activations)));
}

}  // namespace lockstep
