#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <sys/stat.h>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/support/free_port.h"
#include "tests/support/settings.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/same_run.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;
using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t end) {
  return random() % end;
}

template <typename All>
const auto& one_of(Random& random, const All& all) {
  return all[below(random, std::size(all))];
}

// A small run on four replicas that has much to save.
struct Job {
  std::string name;
  std::int64_t steps;
  std::string yaml;
};

const std::vector<Job>& jobs() {
  const std::string fashion = "data: {name: fashion_mnist, batch_size: 8, validation: 0.003";
  const std::string text = "data: {name: text, path: text.md, context: 16, batch_size: 4}\n";
  static const std::vector<Job> all{
      {"accumulation", 400,
       "model: {name: mlp, hidden: [33, 17]}\n" + fashion +
           "}\noptimizer: {name: adam, lr: 0.001}\ntrainer: {accumulate: 2, clip_norm: 0.5}\n"},
      {"compression", 400,
       "model: {name: mlp, hidden: [33, 17]}\n" + fashion +
           "}\noptimizer: {name: adamw, lr: 0.001, amsgrad: true}\n"
           "schedule: {name: cosine, warmup_steps: 20}\nparallel: {compression: bf16}\n"},
      {"gpt", 300,
       "model: {name: gpt, layers: 2, heads: 2, width: 16, dropout: 0.1, recompute: true}\n" +
           text +
           "optimizer: {name: adagrad, lr: 0.01, lr_decay: 0.01}\n"
           "trainer: {ema_decay: 0.99, freeze: ['*ln_f*']}\n"},
      {"cnn", 150,
       "model: {name: cnn, channels: [4, 6], dense: [16]}\n" + fashion +
           ", crop: 2, flip: true}\noptimizer: {name: sgd, lr: 0.05, momentum: 0.9, nesterov: "
           "true}\nschedule: {name: one_cycle}\n"},
      {"linear", 400,
       "model: {name: linear}\ndata: {name: synthetic, validation_samples: 50, batch_size: 4}\n"
       "optimizer: {name: rmsprop, lr: 0.001, centered: true, momentum: 0.5}\n"
       "trainer: {metrics: [r2], patience: 1000, non_finite: skip}\n"},
      {"resnet", 60,
       "model: {name: resnet, depth: 8, width: 4, stochastic_depth: 0.3, recompute: true}\n" +
           fashion +
           ", flip: true, threads: 1}\noptimizer: {name: sgd, lr: 0.05, momentum: 0.9, dampening: "
           "0.5, groups: [{pattern: '*.bias', weight_decay: 0.1}]}\n"
           "schedule: {name: step, step_size: 20}\ntrainer: {ema_decay: 0.9, global_batch: 64}\n"},
      {"bf16", 400,
       "model: {name: mlp, hidden: [33, 17]}\n" + fashion +
           "}\noptimizer: {name: adam, lr: 0.001}\ntrainer: {precision: bf16}\n"},
  };
  return all;
}

// The flags of all its runs, wherever they are placed.
Flags flags_of(const Job& job, const fs::path& folder) {
  const fs::path config = folder / (job.name + ".yaml");
  if (!fs::exists(config)) std::ofstream(config) << job.yaml;
  return Flags{"--config", config.string(), "--replicas", "4", "--resume", "auto"} +
         set(str(
             "parallel.timeout_s=20 trainer.log_every=3 trainer.eval_every=50 checkpoint.every=4 "
             "trainer.steps=",
             job.steps)) +
         (job.name == "gpt" ? Flags{} : set("checkpoint.best=loss"));
}

// Several hosts need processes, and find their way between hosts by themselves.
Flags random_placement(Random& random, std::size_t hosts) {
  const bool is_alone = hosts == 1;
  return set(
      str("parallel.workers=", hosts + below(random, 5 - hosts), " parallel.launch=",
          one_of(random, std::array{"processes", is_alone ? "threads" : "processes"}),
          " parallel.backend=", one_of(random, std::array{"auto", is_alone ? "gloo" : "auto"}),
          " parallel.zero_stage=", below(random, 4)));
}

// A run on one host, or on two that are launchers on the loopback.
class Hosts {
 public:
  Hosts(const fs::path& folder, std::size_t count, const Flags& flags) {
    const fs::path secret = folder / "secret";
    if (!fs::exists(secret)) std::ofstream(secret) << std::string(64, '7') << '\n';
    ::chmod(secret.c_str(), 0600);
    const std::string rendezvous = str("127.0.0.1:", free_port());
    for (std::size_t host = 0; host < count; ++host) {
      Flags own = flags;
      if (count > 1) {
        own = own + Flags{"--nnodes",     str(count), "--node-rank",   str(host),
                          "--rendezvous", rendezvous, "--secret-file", secret.string()};
      }
      launchers_.push_back(std::make_unique<ChildProgram>(training(folder, own)));
    }
  }

  [[nodiscard]] bool running() const {
    return std::ranges::all_of(launchers_, [](const auto& one) { return one->running(); });
  }
  [[nodiscard]] const std::vector<std::unique_ptr<ChildProgram>>& launchers() const {
    return launchers_;
  }
  std::vector<Ended> wait() {
    std::vector<Ended> ended;
    for (const auto& launcher : launchers_) ended.push_back(launcher->wait());
    return ended;
  }

 private:
  std::vector<std::unique_ptr<ChildProgram>> launchers_;
};

// Whether a checkpoint is being written, or its writer was killed.
bool is_saving(const fs::path& run) {
  return has_hidden(run / "checkpoints");
}

// At some time from before the replicas start to the end of a run, now and then during a save.
void wait_for_moment(Random& random, const Hosts& hosts, const fs::path& run) {
  const auto delay = std::chrono::milliseconds(100 + below(random, 1200));
  (void)eventually([&] { return !hosts.running(); }, delay);
  if (below(random, 2) == 0) return;
  (void)eventually([&] { return !hosts.running() || is_saving(run); },
                   std::chrono::milliseconds(500));
}

// Kills a host with all that it runs, its launcher alone, or a replica.
void kill_one(Random& random, const Hosts& hosts) {
  const pid_t launcher = one_of(random, hosts.launchers())->pid();
  const auto replicas = children_of(launcher);
  const std::size_t whom = below(random, 3);
  if (whom == 0) {
    ::kill(-launcher, SIGKILL);
  } else {
    ::kill(whom == 1 || replicas.empty() ? launcher : one_of(random, replicas), SIGKILL);
  }
}

const std::map<int, int> kStatusOf{{SIGINT, 130},  {SIGTERM, 143}, {SIGHUP, 129},
                                   {SIGUSR1, 143}, {SIGUSR2, 143}, {SIGXCPU, 143}};

// Sends a signal as terminals and engines do: to a launcher or all of its processes, on all hosts
// within 25 ms or on one. Returns it.
int signal_one(Random& random, const Hosts& hosts) {
  const auto& [signal, status] =
      *std::next(kStatusOf.begin(), static_cast<std::ptrdiff_t>(below(random, kStatusOf.size())));
  const bool reaches_all = below(random, 2) == 0;
  const std::size_t only = below(random, hosts.launchers().size());
  const bool reaches_group = below(random, 2) == 0;
  for (std::size_t host = 0; host < hosts.launchers().size(); ++host) {
    if (!reaches_all && host != only) continue;
    const pid_t pid = hosts.launchers()[host]->pid();
    ::kill(reaches_group ? -pid : pid, signal);
    const auto gap = std::chrono::milliseconds(below(random, 26));
    (void)eventually([&] { return !hosts.running(); }, gap);
  }
  return signal;
}

// Whether a run has told of its end by a signal as it must: with a checkpoint of the step that it
// names, or before anything had begun.
void check_stop(const std::vector<Ended>& ended, int signal, const fs::path& run) {
  const std::string& out = ended[0].out;
  for (const Ended& end : ended) {
    INFO(end.status << "\n" << end.out << end.err);
    if (end.status == 0) continue;  // it was done
    // Until launch() has begun a signal does what it does to any program.
    if (end.by_signal) {
      CHECK(end.status == 128 + signal);
      CHECK(out.find("step ") == std::string::npos);
      continue;
    }
    // A host that a signal ends before hosts have met does not come, and others wait in vain.
    const auto went_early = [&](const Ended& host) {
      return host.by_signal || (host.status == kStatusOf.at(signal) &&
                                host.err.find(" replicas on ") == std::string::npos);
    };
    const bool has_waited = end.err.find(" within 20000 ms") != std::string::npos;
    const bool waits_in_vain =
        end.status == 3 && has_waited && std::ranges::any_of(ended, went_early);
    CHECK((waits_in_vain || end.status == kStatusOf.at(signal)));
  }
  const std::string words = "stopped after step ";
  const std::size_t told = out.find(words);
  if (told == std::string::npos) return;
  INFO(out);
  CHECK_THAT(out, ContainsSubstring("with a checkpoint: --output "));
  const std::int64_t step = std::atoll(out.c_str() + told + words.size());
  CHECK(read_json(run / "checkpoints/latest/manifest.json")["step"] == step);
}

int interruptions_wanted() {
  const char* const text = std::getenv("LOCKSTEP_INTERRUPTIONS");
  return text != nullptr ? std::atoi(text) : 6;
}

}  // namespace

// LOCKSTEP_INTERRUPTIONS=500 makes five hundred, two of five by SIGKILL.
TEST_CASE("a run that is killed and stopped again and again goes on to the same end") {
  std::cout << "interruptions: LOCKSTEP_SEED=" << seed() << std::endl;
  Random random(seed());
  const TemporaryFolder folder;
  fs::copy_file(LOCKSTEP_SOURCE_DIR "/README.md", folder.path() / "text.md");
  std::set<std::string> whole;
  int kills = 0, signals = 0, during_saves = 0;
  for (std::size_t round = 0; kills + signals < interruptions_wanted(); ++round) {
    const Job& job = jobs()[round % jobs().size()];
    const Flags flags = flags_of(job, folder.path());
    if (whole.insert(job.name).second) {
      must_train(folder.path(), flags + Flags{"--output", job.name});
    }
    const std::string name = str("interrupted-", round);
    const fs::path run = folder.path() / name;
    for (std::size_t left = 1 + below(random, 5);
         left > 0 && kills + signals < interruptions_wanted(); --left) {
      const std::size_t count = 1 + below(random, 2);
      const Flags placement = random_placement(random, count);
      Hosts hosts(folder.path(), count, flags + placement + Flags{"--output", name});
      wait_for_moment(random, hosts, run);
      if (!hosts.running()) break;  // it is done
      INFO(job.name << ", round " << round << ", "
                    << counted(static_cast<std::int64_t>(count), "host") << ": "
                    << join(placement));
      if (is_saving(run)) ++during_saves;
      if (below(random, 5) < 2) {
        kill_one(random, hosts);
        ++kills;
        for (const Ended& end : hosts.wait()) {
          INFO(end.out << end.err);
          CHECK((end.status == 128 + SIGKILL || end.status == 3 || end.status == 0));
        }
      } else {
        const int signal = signal_one(random, hosts);
        ++signals;
        INFO("signal " << signal);
        check_stop(hosts.wait(), signal, run);
      }
    }
    const Ended end =
        train(folder.path(), flags + random_placement(random, 1) + Flags{"--output", name});
    INFO(job.name << ", round " << round << "\n" << end.out << end.err);
    REQUIRE(end.status == 0);
    check_same(run, folder.path() / job.name);
    fs::remove_all(run);
  }
  std::cout << "interruptions: " << kills << " kills and " << signals << " signals, of these "
            << during_saves
            << " while a checkpoint was being written; all runs ended as the uninterrupted ones"
            << std::endl;
}
