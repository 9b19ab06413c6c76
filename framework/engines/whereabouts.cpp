#include "framework/engines/whereabouts.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/number_text.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/engines/meeting_ports.h"
#include "framework/engines/node_list.h"

namespace lockstep::engines {
namespace {

constexpr std::int64_t kMostHosts = 1'000'000;
constexpr std::int64_t kMostTasks = 1'000'000'000;

constexpr const char* kHosts = "LOCKSTEP_NNODES";
constexpr const char* kHost = "LOCKSTEP_NODE_RANK";
constexpr const char* kRendezvous = "LOCKSTEP_RENDEZVOUS";
constexpr const char* kSecretFile = "LOCKSTEP_SECRET_FILE";
const std::map<std::string, std::string> kFlags{{kHosts, "--nnodes"},
                                                {kHost, "--node-rank"},
                                                {kRendezvous, "--rendezvous"},
                                                {kSecretFile, "--secret-file"}};
constexpr const char* kPod = "KUBERNETES_SERVICE_HOST";

struct Name {
  Engine engine;
  const char* flag;  // as --engine takes it
  const char* text;
};
constexpr Name kNames[] = {{Engine::none, "none", "nobody"},
                           {Engine::slurm, "slurm", "Slurm"},
                           {Engine::mpi, "mpi", "MPI"},
                           {Engine::torchrun, "torchrun", "torchrun"},
                           {Engine::kubernetes, "k8s", "Kubernetes"},
                           {Engine::own, "", "flags or LOCKSTEP_…"}};

const Name& named(Engine engine) {
  return *std::ranges::find(kNames, engine, &Name::engine);
}

struct Variable {
  const char* name;
  const char* meaning;
};

// Looks at variables, and notes their names, values and meanings.
class Reader {
 public:
  Reader(const Surroundings& here, bool flags_alone) : here_(here), flags_alone_(flags_alone) {}

  [[nodiscard]] const Surroundings& here() const { return here_; }
  [[nodiscard]] std::vector<ReadVariable> read() { return std::move(read_); }

  // Returns the name of the flag, which wins, if it is given, else that of its variable.
  [[nodiscard]] std::string given_as(const std::string& name) const {
    const auto flag = kFlags.find(name);
    return flag != kFlags.end() && here_.flags.contains(flag->second) ? flag->second : name;
  }
  // Returns nothing if the variable is not set, or empty.
  std::optional<std::string> look(const Variable& variable) {
    const std::string name = given_as(variable.name);
    const bool is_flag = name != variable.name;
    if (flags_alone_ && !is_flag) return std::nullopt;
    const auto& all = is_flag ? here_.flags : here_.variables;
    const auto found = all.find(name);
    std::optional<std::string> value;
    if (found != all.end() && !found->second.empty()) value = found->second;
    if (std::ranges::find(read_, name, &ReadVariable::name) == read_.end()) {
      read_.push_back({name, value, variable.meaning});
    }
    return value;
  }
  // Returns the value of a variable that is set.
  [[nodiscard]] std::string text(const std::string& name) {
    return look({name.c_str(), ""}).value();
  }
  [[nodiscard]] std::int64_t number(const std::string& name, std::int64_t least,
                                    std::int64_t most) {
    const auto number = parse_number<std::int64_t>(text(name));
    require(number && *number >= least && *number <= most, given_as(name), " is ", cut(text(name)),
            ", but must be a whole number from ", least, " to ", most,
            kFlags.contains(name) ? "" : "; --engine none does not read it");
    return *number;
  }
  // Returns a count, or 0 if it is missing.
  [[nodiscard]] std::int64_t count(const Variable& variable) {
    return look(variable) ? number(variable.name, 0, kMostTasks) : 0;
  }

 private:
  const Surroundings& here_;
  const bool flags_alone_;
  std::vector<ReadVariable> read_;
};

// The variables by which an engine tells a task where it is.
struct Dialect {
  Engine engine;
  std::vector<Variable> needed;
  // Takes their values. Returns why they don't speak of this process, or "".
  std::string (*take)(Reader& reader, Whereabouts& found);
  // The variable that tells how many hosts or tasks there are; nullptr where a shell may have the
  // engine's variables, too.
  const char* count = nullptr;
  // Returns why some are set and others are missing; nullptr: the missing ones are listed.
  std::string (*partly)(Reader& reader) = nullptr;
  std::size_t markers = 1;  // so many of `needed`, the first ones, tell that the engine is there
};

// Lets the hosts meet at `host`, which is host 0's, at its first free port of 8.
void meet_at(Whereabouts& found, const std::string& host, std::int64_t first_port) {
  const bool is_ipv6 = host.find(':') != std::string::npos && !host.starts_with('[');
  const std::string bracketed = is_ipv6 ? str("[", host, "]") : host;
  for (std::int64_t port = first_port; port < std::min<std::int64_t>(first_port + 8, 65536);
       ++port) {
    found.rendezvous.push_back(str(bracketed, ":", port));
  }
}
void meet_by_job(Whereabouts& found, const std::string& host, std::uint64_t job,
                 std::uint64_t step) {
  for (const std::uint16_t port : meeting_ports(job, step)) {
    found.rendezvous.push_back(str(host, ":", port));
  }
}

void take_local(Reader& reader, Whereabouts& found, const char* rank, const char* tasks,
                std::int64_t all) {
  found.all_tasks = all;
  found.local_tasks = reader.number(tasks, 1, all);
  found.local_rank = reader.number(rank, 0, found.local_tasks - 1);
}

std::string take_torchrun(Reader& reader, Whereabouts& found) {
  found.starter = "torchrun";
  found.one_task_a_host = "torchrun --nproc_per_node=1 --no_python";
  found.hosts = reader.number("GROUP_WORLD_SIZE", 1, kMostHosts);
  found.host = reader.number("GROUP_RANK", 0, found.hosts - 1);
  const std::int64_t all = reader.number("WORLD_SIZE", 1, kMostTasks);
  take_local(reader, found, "LOCAL_RANK", "LOCAL_WORLD_SIZE", all);
  if (found.hosts * found.local_tasks == all) {
    found.tasks.assign(static_cast<std::size_t>(found.hosts), found.local_tasks);
  }
  found.more_cores = "it has those of its torchrun, which binds nothing itself";
  const std::string job = reader.text("TORCHELASTIC_RUN_ID");
  if (job != "none") found.job = job;  // torchrun's own default
  found.local_job = reader.text("MASTER_ADDR") + ":" + reader.text("MASTER_PORT");
  found.restarts = reader.count({"TORCHELASTIC_RESTART_COUNT", "restarts"});
  const auto agent = reader.look(
      {"TORCHELASTIC_USE_AGENT_STORE", "if True, the agent listens at MASTER_PORT itself"});
  const std::int64_t above = agent == "True" ? 1 : 0;
  meet_at(found, reader.text("MASTER_ADDR"),
          reader.number("MASTER_PORT", 1, 65535 - above) + above);
  return "";
}

// MPI's variables tell neither the host's number nor how many hosts there are: both follow if each
// host has one task, or if one host has all.
void take_mpi(Reader& reader, Whereabouts& found, const char* rank, const char* size,
              const char* local_rank, const char* local_size) {
  const std::int64_t all = reader.number(size, 1, kMostTasks);
  const std::int64_t own = reader.number(rank, 0, all - 1);
  take_local(reader, found, local_rank, local_size, all);
  if (found.local_tasks == all) {
    found.tasks = {all};
    return;
  }
  require(found.local_tasks == 1, found.starter, " has started ", all, " tasks, ",
          found.local_tasks, " of them on this host, and does not say on which hosts the others ",
          "are. Start one on each: ", found.one_task_a_host, " ", reader.here().program, " …");
  require(all <= kMostHosts, size, " is ", all, ", but at most ", kMostHosts, " hosts can be");
  found.hosts = all;
  found.host = own;
}

// "1312817152.0;tcp://192.0.2.2:45723;tcp6://…": the job's number is above the lower 16 bits.
void meet_by_open_mpi(Whereabouts& found, const std::string& uri) {
  constexpr std::string_view kScheme = ";tcp://";
  const std::size_t begin = uri.find(kScheme);
  const auto job = parse_number<std::uint64_t>(uri.substr(0, std::min(uri.find('.'), begin)));
  if (begin == std::string::npos || !job) return;
  const std::string addresses = uri.substr(begin + kScheme.size());
  meet_by_job(found, addresses.substr(0, addresses.find_first_of(",:;")), *job >> 16, 0);
}

// "prterun-node0-19533@1" is a job's name in Open MPI 5: the host and the process of mpirun, and
// the job's number there.
void meet_by_prrte(Whereabouts& found, const std::string& name) {
  const std::size_t host = name.find('-') + 1;
  const std::size_t end = name.rfind('-');
  const std::size_t at = name.rfind('@');
  if (!name.starts_with("prte") || at == std::string::npos || end <= host || at < end) return;
  const auto process = parse_number<std::uint64_t>(name.substr(end + 1, at - end - 1));
  const auto job = parse_number<std::uint64_t>(name.substr(at + 1));
  if (process && job) meet_by_job(found, name.substr(host, end - host), *process, *job);
}

std::string take_open_mpi(Reader& reader, Whereabouts& found) {
  found.starter = "mpirun";
  found.one_task_a_host = "mpirun -N 1 --bind-to none";
  found.more_cores = "mpirun --bind-to none gives it all";
  found.job = reader
                  .look({"PMIX_NAMESPACE",
                         "the job; of Open MPI 5 also mpirun's host, where host 0 is expected "
                         "(--rendezvous if it is not there)"})
                  .value_or("");
  take_mpi(reader, found, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
           "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  const auto uri = reader.look(
      {"OMPI_MCA_orte_hnp_uri",
       "job and address of mpirun, of Open MPI 4: host 0 is expected on its host (--rendezvous if "
       "it is not)"});
  if (found.hosts == 1) return "";
  uri ? meet_by_open_mpi(found, *uri) : meet_by_prrte(found, found.job);
  return "";
}

std::string take_mpich(Reader& reader, Whereabouts& found) {
  found.starter = "mpiexec";
  found.one_task_a_host = "mpiexec -ppn 1";
  found.more_cores = "mpiexec -bind-to none gives it all";
  take_mpi(reader, found, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  return "";
}

std::string in_slurm_job(Reader& reader) {
  const std::int64_t nodes = reader.count({"SLURM_JOB_NUM_NODES",
                                           "hosts of the whole job; only told, since a step may "
                                           "have fewer"});
  return str("in Slurm job ", cut(reader.text("SLURM_JOB_ID")),
             nodes > 1 ? str(" of ", nodes, " nodes") : "", ", but ");
}
std::string not_by_srun(Reader& reader) {
  return in_slurm_job(reader) + "not started by srun";
}

// Only a step's variables speak of this process. A job's are inherited: in a batch script, or a
// shell of salloc, they count tasks which nobody has started.
std::string take_slurm(Reader& reader, Whereabouts& found) {
  constexpr std::int64_t kFirstReserved = 0xffff'fff0;  // batch scripts, shells of salloc, ssh
  const std::int64_t step = reader.number("SLURM_STEP_ID", 0, 0xffff'ffff);
  if (step >= kFirstReserved) return not_by_srun(reader);
  const std::int64_t all = reader.number("SLURM_STEP_NUM_TASKS", 1, kMostTasks);
  if (all > 1 && reader.here().has_terminal) {
    const auto started = reader.look(
        {"SLURM_TASK_PID", "the process that srun has started: another is a command in its shell"});
    if (started != std::to_string(reader.here().pid)) {
      return in_slurm_job(reader) + "by hand in a shell that srun has started";
    }
  }
  found.starter = "srun";
  found.one_task_a_host = "srun --ntasks-per-node=1 -c CORES";
  found.more_cores = "srun -c CORES gives it more";
  found.hosts = reader.number("SLURM_STEP_NUM_NODES", 1, kMostHosts);
  found.host = reader.number("SLURM_NODEID", 0, found.hosts - 1);
  (void)reader.number("SLURM_PROCID", 0, all - 1);
  const auto hosts = static_cast<std::size_t>(found.hosts);
  const auto parsed = [&](const char* name, const auto& parse) {
    try {
      return parse(reader.text(name));
    } catch (const ValueError& error) {
      throw ValueError(str(name, ": ", error.what(), "; --engine none does not read it"));
    }
  };
  const std::vector<std::string> names = parsed("SLURM_STEP_NODELIST", node_names);
  const std::string tasks = reader.text("SLURM_STEP_TASKS_PER_NODE");
  found.tasks = parsed("SLURM_STEP_TASKS_PER_NODE", numbers_of_nodes);
  require(names.size() == hosts && found.tasks.size() == hosts, "SLURM_STEP_NUM_NODES is ", hosts,
          ", but SLURM_STEP_NODELIST has ", names.size(), " and SLURM_STEP_TASKS_PER_NODE ",
          found.tasks.size());
  require(sum_of(found.tasks, std::identity()) == all, "SLURM_STEP_NUM_TASKS is ", all,
          ", but SLURM_STEP_TASKS_PER_NODE is ", cut(tasks));
  found.all_tasks = all;
  found.local_tasks = found.tasks[static_cast<std::size_t>(found.host)];
  found.local_rank = reader.number("SLURM_LOCALID", 0, found.local_tasks - 1);
  found.job = reader.text("SLURM_JOB_ID");
  found.step = std::to_string(step);
  found.restarts = reader.count({"SLURM_RESTART_COUNT", "how often the job was requeued"});
  const std::int64_t job =
      reader.number("SLURM_JOB_ID", 0, std::numeric_limits<std::int64_t>::max());
  meet_by_job(found, names[0], static_cast<std::uint64_t>(job), static_cast<std::uint64_t>(step));
  return "";
}

// A pod's name is JOB-INDEX; host 0's differs in its index.
std::string take_indexed_job(Reader& reader, Whereabouts& found) {
  found.more_cores = "resources.limits.cpu of its container gives it more";
  found.hosts = reader.number(kHosts, 1, kMostHosts);
  found.host = reader.number("JOB_COMPLETION_INDEX", 0, kMostHosts);
  require(found.host < found.hosts, "JOB_COMPLETION_INDEX is ", found.host, ", but ",
          reader.given_as(kHosts), " says ", counted(found.hosts, "pod"),
          ": give it the Job's `completions`");
  if (found.hosts == 1 || reader.look({kRendezvous, "where the hosts meet"})) return "";
  const std::string own = reader.here().host_name();
  const std::size_t dot = std::min(own.find('.'), own.size());
  const std::string index = str("-", found.host);
  require(dot < own.size() && own.substr(0, dot).ends_with(index), "this pod is called ", cut(own),
          ", and not JOB", index,
          ".DOMAIN, from which host 0's name would follow: give the job a "
          "headless Service and the pods its name as `subdomain`, or set ",
          kRendezvous);
  found.job = own.substr(0, dot - index.size());
  meet_by_job(found, found.job + "-0" + own.substr(dot), 0, 0);
  return "";
}

const std::vector<Dialect>& dialects() {
  static const std::vector<Dialect> all{
      {Engine::own,
       {{kHosts, "hosts"}, {kHost, "this host's number"}, {kRendezvous, "where the hosts meet"}},
       [](Reader& /*reader*/, Whereabouts& /*found*/) { return std::string(); },
       kHosts},
      {Engine::torchrun,
       {{"WORLD_SIZE", "tasks in all, by torchrun"},
        {"RANK", "this task's number: launchers that Lockstep does not know set both as well"},
        {"TORCHELASTIC_RUN_ID", "the job, of torchrun"},
        {"GROUP_RANK", "this host's number"},
        {"GROUP_WORLD_SIZE", "hosts"},
        {"LOCAL_RANK", "this task's number on its host"},
        {"LOCAL_WORLD_SIZE", "tasks on this host"},
        {"MASTER_ADDR", "host 0"},
        {"MASTER_PORT", "where host 0 listens"}},
       take_torchrun,
       "WORLD_SIZE",
       nullptr,
       2},
      {Engine::mpi,
       {{"OMPI_COMM_WORLD_RANK", "this task's number, by Open MPI"},
        {"OMPI_COMM_WORLD_SIZE", "tasks in all"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "this task's number on its host"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "tasks on this host"}},
       take_open_mpi,
       "OMPI_COMM_WORLD_SIZE"},
      {Engine::mpi,
       {{"PMI_RANK", "this task's number, by MPICH"},
        {"PMI_SIZE", "tasks in all"},
        {"MPI_LOCALRANKID", "this task's number on its host"},
        {"MPI_LOCALNRANKS", "tasks on this host"}},
       take_mpich,
       "PMI_SIZE"},
      {Engine::slurm,
       {{"SLURM_JOB_ID", "the job, of Slurm"},
        {"SLURM_STEP_ID", "the job's step: what one srun has started"},
        {"SLURM_STEP_NUM_NODES", "hosts of the step"},
        {"SLURM_STEP_NUM_TASKS", "tasks of the step"},
        {"SLURM_STEP_NODELIST", "names of its hosts: all meet at the first"},
        {"SLURM_STEP_TASKS_PER_NODE", "tasks on each of them"},
        {"SLURM_PROCID", "this task's number; never taken for a host's"},
        {"SLURM_NODEID", "this host's number"},
        {"SLURM_LOCALID", "this task's number on its host"}},
       take_slurm,
       nullptr,
       not_by_srun},
      {Engine::kubernetes,
       {{"JOB_COMPLETION_INDEX", "this pod's number, by an Indexed Job or JobSet"},
        {kHosts, "pods, which Kubernetes does not tell"}},
       take_indexed_job,
       kHosts}};
  return all;
}

// Each flag or variable of Lockstep's wins over the engine's value. Where they number the hosts,
// each task is a host. A host alone is host 0, and its tasks stay together.
void take_own(Reader& reader, Whereabouts& found) {
  const auto hosts = reader.look({kHosts, "hosts"});
  const auto host = reader.look({kHost, "this host's number"});
  const auto rendezvous = reader.look({kRendezvous, "where the hosts meet"});
  const std::int64_t of_engine = found.hosts;
  if (hosts) found.hosts = reader.number(kHosts, 1, kMostHosts);
  if (host) found.host = reader.number(kHost, 0, kMostHosts);
  if (host && found.hosts > 1) {
    found.local_rank = 0;
    found.local_tasks = 1;
    found.all_tasks = 0;
    found.tasks.clear();
  } else if (found.hosts != of_engine) {
    require(found.hosts == 1, reader.given_as(kHosts), " is ", found.hosts, ", but ",
            found.starter.empty() ? named(found.engine).text : found.starter, " has started ",
            counted(of_engine, "host"), ": --node-rank I says which of the ", found.hosts,
            " this task is; --engine none makes each a run of its own");
    if (!host) found.host = 0;
    found.all_tasks = found.local_tasks;
    found.tasks = {found.local_tasks};
  }
  if (rendezvous) found.rendezvous = {*rendezvous};
  require(found.host < found.hosts, "this is host ", found.host, " of ", found.hosts,
          ": hosts are numbered from 0 to ", found.hosts - 1);
  if (found.hosts == 1) found.rendezvous.clear();
  require(found.hosts == 1 || !found.rendezvous.empty(), found.starter, " has started ",
          found.hosts,
          " hosts and does not say where the first is: add --rendezvous HOST:PORT, an ",
          "address of host 0 and a free port there");
}

// Takes what several hosts need to meet: the secret and, for pods, more time and a hint.
void take_meeting(Reader& reader, Whereabouts& found) {
  found.secret_file = reader.look({kSecretFile, "the hosts' secret"}).value_or("");
  const bool is_pod = found.engine == Engine::kubernetes ||
                      (found.engine == Engine::own && reader.look({kPod, "whether this is a pod"}));
  if (!is_pod) return;
  found.meet_timeout_s = 600;
  found.unknown_name_hint =
      "; the pods' names are those of a headless Service, which they give as `subdomain` and which "
      "needs publishNotReadyAddresses: true";
}

// True if a user says that this host is alone: then there is nothing to tell.
bool is_said_to_be_alone(Reader& reader) {
  return reader.look({kHosts, "hosts"}) == "1";
}

// True if this may be one of several processes that lack the same variables, and that would all
// train alone.
bool is_one_of_many(const Dialect& dialect, Reader& reader) {
  if (dialect.count == nullptr || reader.look({dialect.count, ""}) == "1") return false;
  // The command line tells which flags are missing.
  if (reader.given_as(dialect.count) != dialect.count) return false;
  // srun sets PMI_… as well, also for a shell.
  return dialect.take != take_mpich || !reader.look({"SLURM_JOB_ID", "the job, of Slurm"});
}

// Returns the place by this dialect's variables, if they are complete and speak of this process.
// Otherwise `because` says why not, if some are set.
std::optional<Whereabouts> take(const Dialect& dialect, Reader& reader, std::string& because) {
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < dialect.needed.size(); ++i) {
    if (reader.look(dialect.needed[i])) continue;
    if (i < dialect.markers) return std::nullopt;
    missing.emplace_back(dialect.needed[i].name);
  }
  if (missing.empty()) {
    Whereabouts found{.engine = dialect.engine};
    because = dialect.take(reader, found);
    if (because.empty()) return found;
  } else if (dialect.partly != nullptr) {
    because = dialect.partly(reader);
  } else {
    because = str(reader.given_as(dialect.needed[0].name), " is set, but ", listed(missing),
                  missing.size() == 1 ? " is not" : " are not");
  }
  return std::nullopt;
}

// Returns "job 18, step 0, restart 1", as far as it is known.
std::string job_text(const std::string& job, const std::string& step, std::int64_t restarts) {
  std::vector<std::string> parts;
  if (!job.empty()) parts.push_back("job " + job);
  if (!step.empty()) parts.push_back("step " + step);
  if (restarts > 0) parts.push_back(str("restart ", restarts));
  return join(parts);
}

// Returns the refusal of an engine that is asked for, but is not there.
std::string not_there(Engine wanted, const std::string& because) {
  std::vector<std::string> markers;
  for (const Dialect& dialect : dialects()) {
    if (dialect.engine == wanted) markers.emplace_back(dialect.needed[0].name);
  }
  return str("--engine ", named(wanted).flag, ": ",
             !because.empty()      ? because
             : markers.size() == 1 ? markers[0] + " is not set"
                                   : str("none of ", join(markers), " is set"),
             "; --engine none or auto run without it");
}

}  // namespace

std::optional<Engine> parse_engine(const std::string& name) {
  if (name == "auto") return std::nullopt;
  const auto asked = std::span(kNames).first(std::size(kNames) - 1);  // nobody asks for flags
  const auto found = std::ranges::find(asked, name, &Name::flag);
  require(found != asked.end(), "must be auto, ", join(mapped(asked, &Name::flag)), ", is ",
          cut(name));
  return found->engine;
}

Whereabouts find_whereabouts(const Surroundings& here, std::optional<Engine> wanted) {
  Reader reader(here, wanted == Engine::none);
  Whereabouts found;
  std::string because;  // of the innermost dialect
  std::string of_many;  // of the innermost dialect by which this is one of many
  try {
    for (const Dialect& dialect : dialects()) {
      const bool is_asked = !wanted || dialect.engine == *wanted ||
                            (wanted == Engine::none && dialect.engine == Engine::own);
      if (!is_asked) continue;
      std::string reason;
      if (auto taken = take(dialect, reader, reason)) {
        found = std::move(*taken);
        take_own(reader, found);
        if (found.hosts > 1) take_meeting(reader, found);
        break;
      }
      if (because.empty()) because = reason;
      const bool is_of_many = !reason.empty() && is_one_of_many(dialect, reader);
      if (of_many.empty() && is_of_many) of_many = reason;
    }
    if (found.engine == Engine::none) {
      if (!wanted && reader.look({kHost, "this host's number"}) &&
          reader.given_as(kHost) == kHost) {
        require(reader.look({kHosts, "hosts"}).has_value(), kHost, " is set, but ", kHosts,
                " is not; --engine none reads neither");
        if (is_said_to_be_alone(reader)) (void)reader.number(kHost, 0, 0);
      }
      if (wanted && wanted != Engine::none) throw ValueError(not_there(*wanted, because));
      const bool is_alone = because.empty() || is_said_to_be_alone(reader);
      require(
          is_alone || of_many.empty(), of_many,
          "; --engine none makes it a run of its own; --nnodes, --node-rank and --rendezvous say "
          "which host of a training it is");
      if (!is_alone) found.alone_because = because + ": this host alone";
    }
  } catch (const ValueError& error) {
    found.refusal = error.what();
  }
  found.read = reader.read();
  return found;
}

std::string name_of(Engine engine) {
  return named(engine).flag;
}

bool is_logged_by_engine(const Surroundings& here) {
  if (here.has_terminal) return false;
  const Whereabouts where = find_whereabouts(here);
  return is_engine(where.engine) || !where.refusal.empty();
}

std::string text_of(const Whereabouts& where) {
  if (where.engine == Engine::none) return "this host alone";
  const std::string of_job = job_text(cut(where.job), where.step, where.restarts);
  return str("host ", where.host, " of ", where.hosts, ", by ", named(where.engine).text,
             of_job.empty() ? "" : str(" (", of_job, ")"),
             where.local_tasks > 1 ? str(", ", where.local_tasks, " tasks here") : "",
             where.rendezvous.empty() ? "" : "; they meet at " + where.rendezvous[0]);
}

std::string job_of(const Whereabouts& where) {
  if (where.job.empty()) return "";
  return str(
      named(where.engine).text, ", ",
      job_text(where.job, where.step, where.engine == Engine::torchrun ? 0 : where.restarts));
}

}  // namespace lockstep::engines
