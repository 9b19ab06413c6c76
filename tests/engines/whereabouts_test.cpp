#include "framework/engines/whereabouts.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using namespace lockstep::engines;

namespace {

using Variables = std::map<std::string, std::string>;

// Reads "A=1 B=x": as `env` prints variables, but in one line.
Variables variables(const std::string& text) {
  Variables all;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    all[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return all;
}

Surroundings surroundings(const std::string& text) {
  return {.variables = variables(text),
          .host_name = [] { return std::string("train-1.meet.default.svc.cluster.local"); },
          .pid = 700,
          .program = "train"};
}

// Returns the text that a run would print.
std::string said(const Whereabouts& where) {
  if (!where.refusal.empty()) return "refused: " + where.refusal;
  return where.alone_because.empty() ? text_of(where) : where.alone_because;
}

Whereabouts found(const std::string& text, std::optional<Engine> wanted = std::nullopt) {
  return find_whereabouts(surroundings(text), wanted);
}

// As recorded of Slurm 22.05, Open MPI 4.1.4 and torchrun 1.13; Kubernetes' variables are as its
// sources set them.
const std::string kSlurmJob =
    "SLURM_JOB_ID=18 SLURM_JOB_NODELIST=node[0-1] SLURM_JOB_NUM_NODES=2 SLURM_NNODES=2 "
    "SLURM_NODELIST=node[0-1] SLURM_JOB_CPUS_PER_NODE=4(x2) ";
const std::string kBatchShell =
    kSlurmJob + "SLURM_PROCID=0 SLURM_NODEID=0 SLURM_LOCALID=0 SLURM_NTASKS=2 SLURM_TASK_PID=700 ";
const std::string kStepOfTwo =
    "SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 "
    "SLURM_STEP_NODELIST=node[0-1] SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_NTASKS=2 "
    "SLURM_LAUNCH_NODE_IPADDR=10.77.0.1 SLURM_TASK_PID=700 ";
const std::string kTask1 =
    kSlurmJob + kStepOfTwo + "SLURM_PROCID=1 SLURM_NODEID=1 SLURM_LOCALID=0 ";
// srun -N2 -n4 --distribution=cyclic: 0, 2 and 3 are on node0.
const std::string kCyclic =
    kSlurmJob +
    "SLURM_STEP_ID=3 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NODELIST=node[0-1] "
    "SLURM_STEP_TASKS_PER_NODE=3,1 SLURM_TASK_PID=700 ";
const std::string kOpenMpi =
    "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 "
    "OMPI_COMM_WORLD_NODE_RANK=0 OMPI_UNIVERSE_SIZE=4 PMIX_RANK=1 PMIX_NAMESPACE=1312817153 "
    "OMPI_MCA_orte_num_nodes=2 "
    "OMPI_MCA_orte_hnp_uri=1312817152.0;tcp://192.0.2.2:45723;tcp6://[fe80::1]:45724 ";
// Open MPI 5.0.7.
const std::string kOpenMpi5 =
    "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 "
    "OMPI_COMM_WORLD_NODE_RANK=0 OMPI_UNIVERSE_SIZE=2 OMPI_VERSION=5.0.7 PRTE_LAUNCHED=1 "
    "PMIX_SERVER_URI4=prterun-node-0-19533@0.0;tcp4://192.0.2.2:55981 OMPI_COMM_WORLD_RANK=1 ";
const std::string kTorchrun =
    "RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=1 GROUP_WORLD_SIZE=2 "
    "ROLE_RANK=1 ROLE_WORLD_SIZE=2 MASTER_ADDR=node0 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none "
    "TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=3 OMP_NUM_THREADS=1 ";
const std::string kPod = "KUBERNETES_SERVICE_HOST=10.96.0.1 HOSTNAME=train-1 ";
const std::string kIndexedJob = kPod + "JOB_COMPLETION_INDEX=1 LOCKSTEP_NNODES=4 ";

struct Case {
  const char* what;
  std::string variables;
  const char* said;
};

}  // namespace

TEST_CASE("each engine's variables say where a task is") {
  const std::vector<Case> cases{
      {"nobody", "HOME=/root PATH=/usr/bin", "this host alone"},
      {"a pod that has nothing to do with a job", kPod, "this host alone"},
      {"srun", kTask1, "host 1 of 2, by Slurm (job 18, step 0); they meet at node0:62592"},
      {"srun after a requeue", kTask1 + "SLURM_RESTART_COUNT=1",
       "host 1 of 2, by Slurm (job 18, step 0, restart 1); they meet at node0:62592"},
      {"srun with several tasks a host", kCyclic + "SLURM_PROCID=2 SLURM_NODEID=0 SLURM_LOCALID=1",
       "host 0 of 2, by Slurm (job 18, step 3), 3 tasks here; they meet at node0:62595"},
      {"its task on the other host", kCyclic + "SLURM_PROCID=1 SLURM_NODEID=1 SLURM_LOCALID=0",
       "host 1 of 2, by Slurm (job 18, step 3); they meet at node0:62595"},
      {"srun -n1",
       kBatchShell + "SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=1 "
                     "SLURM_STEP_NODELIST=node0 SLURM_STEP_TASKS_PER_NODE=1",
       "host 0 of 1, by Slurm (job 18, step 0)"},
      {"srun in a shell of srun --pty, which its tasks inherit", kTask1 + "SLURM_PTY_PORT=40000",
       "host 1 of 2, by Slurm (job 18, step 0); they meet at node0:62592"},
      {"mpirun", kOpenMpi + "OMPI_COMM_WORLD_RANK=1",
       "host 1 of 2, by MPI (job 1312817153); they meet at 192.0.2.2:61440"},
      {"mpirun of Open MPI 5", kOpenMpi5 + "PMIX_RANK=1 PMIX_NAMESPACE=prterun-node-0-19533@1",
       "host 1 of 2, by MPI (job prterun-node-0-19533@1); they meet at node-0:62273"},
      {"mpirun of Open MPI 5, with a job's name that tells nothing",
       kOpenMpi5 + "PMIX_NAMESPACE=prterun-19533@1 LOCKSTEP_RENDEZVOUS=node0:29500",
       "host 1 of 2, by MPI (job prterun-19533@1); they meet at node0:29500"},
      {"mpirun on one host",
       "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=2 "
       "OMPI_COMM_WORLD_LOCAL_SIZE=4",
       "host 0 of 1, by MPI, 4 tasks here"},
      {"mpirun under sbatch, in the batch shell's variables",
       kBatchShell + kOpenMpi + "OMPI_COMM_WORLD_RANK=0",
       "host 0 of 2, by MPI (job 1312817153); they meet at 192.0.2.2:61440"},
      {"mpirun under sbatch, in those of the step of its daemon",
       kSlurmJob + kOpenMpi +
           "OMPI_COMM_WORLD_RANK=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=1 "
           "SLURM_STEP_NODELIST=node1 SLURM_STEP_TASKS_PER_NODE=1 SLURM_PROCID=0 SLURM_NODEID=0 "
           "SLURM_LOCALID=0",
       "host 1 of 2, by MPI (job 1312817153); they meet at 192.0.2.2:61440"},
      {"MPICH's mpiexec, with a rendezvous",
       "PMI_RANK=0 PMI_SIZE=2 PMI_FD=7 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1 "
       "LOCKSTEP_RENDEZVOUS=node0:29500",
       "host 0 of 2, by MPI; they meet at node0:29500"},
      {"srun --mpi=pmi2, whose PMI_… are no MPI's of ours", kTask1 + "PMI_RANK=1 PMI_SIZE=2",
       "host 1 of 2, by Slurm (job 18, step 0); they meet at node0:62592"},
      {"torchrun whose agent listens at the port", kTorchrun + "TORCHELASTIC_USE_AGENT_STORE=True",
       "host 1 of 2, by torchrun; they meet at node0:29501"},
      {"torchrun with c10d of 1.13", kTorchrun + "TORCHELASTIC_USE_AGENT_STORE=False",
       "host 1 of 2, by torchrun; they meet at node0:29500"},
      {"torchrun after a restart, in a step of Slurm",
       kTask1 + kTorchrun + "TORCHELASTIC_RUN_ID=x7 TORCHELASTIC_RESTART_COUNT=2",
       "host 1 of 2, by torchrun (job x7, restart 2); they meet at node0:29500"},
      {"torchrun in a pod of an Indexed Job", kPod + "JOB_COMPLETION_INDEX=1 " + kTorchrun,
       "host 1 of 2, by torchrun; they meet at node0:29500"},
      {"an Indexed Job", kIndexedJob,
       "host 1 of 4, by Kubernetes (job train); they meet at "
       "train-0.meet.default.svc.cluster.local:61440"},
      {"an Indexed Job with a rendezvous",
       kPod + "JOB_COMPLETION_INDEX=3 LOCKSTEP_NNODES=4 LOCKSTEP_RENDEZVOUS=a:1",
       "host 3 of 4, by Kubernetes; they meet at a:1"},
      {"an Indexed Job of one pod", kPod + "JOB_COMPLETION_INDEX=0 LOCKSTEP_NNODES=1",
       "host 0 of 1, by Kubernetes"},
      {"our own variables, in a step of Slurm",
       kTask1 + "LOCKSTEP_NNODES=3 LOCKSTEP_NODE_RANK=2 LOCKSTEP_RENDEZVOUS=[::1]:29500",
       "host 2 of 3, by flags or LOCKSTEP_…; they meet at [::1]:29500"}};
  for (const Case& each : cases) {
    INFO(each.what);
    CHECK(said(found(each.variables)) == each.said);
  }
}

TEST_CASE("a partial set of variables is a host alone, with a line that says so") {
  const std::vector<Case> cases{
      {"a batch script", kBatchShell,
       "in Slurm job 18 of 2 nodes, but not started by srun: this host alone"},
      {"salloc's shell", kSlurmJob + "SLURM_NTASKS=2",
       "in Slurm job 18 of 2 nodes, but not started by srun: this host alone"},
      {"salloc's shell with use_interactive_step",
       kBatchShell + "SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=1 "
                     "SLURM_STEP_NODELIST=node0 SLURM_STEP_TASKS_PER_NODE=1 SLURM_PTY_PORT=40000",
       "in Slurm job 18 of 2 nodes, but not started by srun: this host alone"},
      {"ssh into an allocated node", "SLURM_JOB_ID=18",
       "in Slurm job 18, but not started by srun: this host alone"},
      {"one task of a launcher with some of MPICH's", "PMI_RANK=0 PMI_SIZE=1",
       "PMI_RANK is set, but MPI_LOCALRANKID, MPI_LOCALNRANKS are not: this host alone"},
      {"RANK where there is one", "RANK=0 WORLD_SIZE=1 MASTER_ADDR=a MASTER_PORT=1",
       "WORLD_SIZE is set, but TORCHELASTIC_RUN_ID, GROUP_RANK, GROUP_WORLD_SIZE, LOCAL_RANK, "
       "LOCAL_WORLD_SIZE are not: this host alone"},
      {"srun's PMI_… in a batch script: of two engines the inner one", kBatchShell + "PMI_RANK=0",
       "PMI_RANK is set, but PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS are not: this host alone"}};
  for (const Case& each : cases) {
    INFO(each.what);
    const Whereabouts where = found(each.variables);
    CHECK(said(where) == each.said);
    CHECK(where.engine == Engine::none);
    CHECK(where.hosts == 1);
  }
  CHECK(said(found("RANK=0")) == "this host alone");  // which others may mean otherwise
}

TEST_CASE("one of many hosts or tasks that does not know which it is does not run") {
  const std::vector<Case> cases{
      {"torchrun's, of which some are lost",
       "RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x MASTER_ADDR=a MASTER_PORT=1",
       "WORLD_SIZE is set, but GROUP_RANK, GROUP_WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE are not"},
      {"a launcher with some of MPICH's", "PMI_RANK=0 PMI_SIZE=2",
       "PMI_RANK is set, but MPI_LOCALRANKID, MPI_LOCALNRANKS are not"},
      {"a launcher with some of torchrun's", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1",
       "WORLD_SIZE is set, but TORCHELASTIC_RUN_ID, GROUP_RANK, GROUP_WORLD_SIZE, LOCAL_RANK, "
       "LOCAL_WORLD_SIZE are not"},
      {"pods of an Indexed Job that does not tell how many", kPod + "JOB_COMPLETION_INDEX=1",
       "JOB_COMPLETION_INDEX is set, but LOCKSTEP_NNODES is not"},
      {"pods of a Job that is not Indexed", kPod + "LOCKSTEP_NNODES=2",
       "LOCKSTEP_NNODES is set, but LOCKSTEP_NODE_RANK, LOCKSTEP_RENDEZVOUS are not"},
      {"a host that does not know where to meet", "LOCKSTEP_NNODES=2 LOCKSTEP_NODE_RANK=1",
       "LOCKSTEP_NNODES is set, but LOCKSTEP_RENDEZVOUS is not"},
      {"the same in a batch script", kBatchShell + "LOCKSTEP_NNODES=2 LOCKSTEP_NODE_RANK=1",
       "LOCKSTEP_NNODES is set, but LOCKSTEP_RENDEZVOUS is not"}};
  for (const Case& each : cases) {
    INFO(each.what);
    CHECK(said(found(each.variables)) ==
          str("refused: ", each.said,
              "; --engine none makes it a run of its own; --nnodes, --node-rank and --rendezvous "
              "say which host of a training it is"));
    CHECK(said(found(each.variables, Engine::none)) == "this host alone");
  }
  for (const std::string alone : {"PMI_RANK=0 PMI_SIZE=2 ", "RANK=0 WORLD_SIZE=2 "}) {
    CHECK(said(found(alone + "LOCKSTEP_NNODES=1")) == "this host alone");
  }
}

TEST_CASE("a command by hand in a shell of srun --pty is a host alone, srun --pty train is not") {
  Surroundings here = surroundings(kTask1 + "SLURM_PTY_PORT=40000");
  here.has_terminal = true;
  CHECK(said(find_whereabouts(here)) ==
        "host 1 of 2, by Slurm (job 18, step 0); they meet at node0:62592");
  here.pid = 701;
  CHECK(said(find_whereabouts(here)) ==
        "in Slurm job 18 of 2 nodes, but by hand in a shell that srun has started: this host "
        "alone");
  here.has_terminal = false;  // a script that srun has started
  CHECK(find_whereabouts(here).hosts == 2);
}

TEST_CASE("variables that contradict each other are refused") {
  const std::vector<Case> cases{
      {"no number", kSlurmJob + kStepOfTwo + "SLURM_PROCID=1 SLURM_NODEID=x SLURM_LOCALID=0",
       "SLURM_NODEID is x, but must be a whole number from 0 to 1; --engine none does not read it"},
      {"a part of a step on nodes of several kinds",
       kSlurmJob + kStepOfTwo + "SLURM_PROCID=2 SLURM_NODEID=0 SLURM_LOCALID=0",
       "SLURM_PROCID is 2, but must be a whole number from 0 to 1; --engine none does not read it"},
      {"fewer names than nodes", kTask1 + "SLURM_STEP_NODELIST=node0",
       "SLURM_STEP_NUM_NODES is 2, but SLURM_STEP_NODELIST has 1 and SLURM_STEP_TASKS_PER_NODE 2"},
      {"other tasks", kTask1 + "SLURM_STEP_TASKS_PER_NODE=3,1",
       "SLURM_STEP_NUM_TASKS is 2, but SLURM_STEP_TASKS_PER_NODE is 3,1"},
      {"a list that is none", kTask1 + "SLURM_STEP_NODELIST=node[0-",
       "SLURM_STEP_NODELIST: the list 'node[0-', behind its first 7 letters: expected a number; "
       "--engine none does not read it"},
      {"several tasks on hosts that MPI does not tell",
       "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 "
       "OMPI_COMM_WORLD_LOCAL_SIZE=2",
       "mpirun has started 4 tasks, 2 of them on this host, and does not say on which hosts the "
       "others are. Start one on each: mpirun -N 1 --bind-to none train …"},
      {"an Open MPI whose job's name does not tell where its mpirun is",
       "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 "
       "OMPI_COMM_WORLD_LOCAL_SIZE=1 PRTE_LAUNCHED=1 PMIX_NAMESPACE=4711@1",
       "mpirun has started 2 hosts and does not say where the first is: add --rendezvous "
       "HOST:PORT, an address of host 0 and a free port there"},
      {"a pod beyond the hosts", kPod + "JOB_COMPLETION_INDEX=2 LOCKSTEP_NNODES=2",
       "JOB_COMPLETION_INDEX is 2, but LOCKSTEP_NNODES says 2 pods: give it the Job's "
       "`completions`"},
      {"a host, and nobody says of how many", "LOCKSTEP_NODE_RANK=1 LOCKSTEP_RENDEZVOUS=a:1",
       "LOCKSTEP_NODE_RANK is set, but LOCKSTEP_NNODES is not; --engine none reads neither"},
      {"a second host of one", "LOCKSTEP_NODE_RANK=1 LOCKSTEP_NNODES=1",
       "LOCKSTEP_NODE_RANK is 1, but must be a whole number from 0 to 0"},
      {"other hosts than srun's", kTask1 + "LOCKSTEP_NNODES=4",
       "LOCKSTEP_NNODES is 4, but srun has started 2 hosts: --node-rank I says which of the 4 "
       "this task is; --engine none makes each a run of its own"},
      {"an Indexed Job without a Service", kPod + "JOB_COMPLETION_INDEX=2 LOCKSTEP_NNODES=4",
       "this pod is called train-1.meet.default.svc.cluster.local, and not JOB-2.DOMAIN, from "
       "which host 0's name would follow: give the job a headless Service and the pods its name "
       "as `subdomain`, or set LOCKSTEP_RENDEZVOUS"},
      {"a host beyond the last", kTask1 + "LOCKSTEP_NODE_RANK=2",
       "this is host 2 of 2: hosts are numbered from 0 to 1"}};
  for (const Case& each : cases) {
    INFO(each.what);
    CHECK(said(found(each.variables)) == str("refused: ", each.said));
  }
}

TEST_CASE("flags win one by one over variables of ours, and these over an engine's") {
  Surroundings here = surroundings(kTask1);
  here.flags = {{"--rendezvous", "node0:29500"}};
  CHECK(said(find_whereabouts(here)) ==
        "host 1 of 2, by Slurm (job 18, step 0); they meet at node0:29500");
  here.variables["LOCKSTEP_RENDEZVOUS"] = "elsewhere:1";
  here.variables["LOCKSTEP_NODE_RANK"] = "0";
  CHECK(said(find_whereabouts(here)) ==
        "host 0 of 2, by Slurm (job 18, step 0); they meet at node0:29500");
  here.flags["--nnodes"] = "4";
  here.flags["--node-rank"] = "4";
  CHECK(said(find_whereabouts(here)) ==
        "refused: this is host 4 of 4: hosts are numbered from 0 to 3");
  here.flags["--node-rank"] = "x";
  CHECK(said(find_whereabouts(here)) ==
        "refused: --node-rank is x, but must be a whole number from 0 to 1000000");
}

TEST_CASE("tasks are as the engine has started them unless hosts are numbered otherwise") {
  Surroundings here = surroundings(kCyclic + "SLURM_PROCID=2 SLURM_NODEID=0 SLURM_LOCALID=1");
  here.flags = {{"--nnodes", "2"}};
  CHECK(said(find_whereabouts(here)) ==
        "host 0 of 2, by Slurm (job 18, step 3), 3 tasks here; they meet at node0:62595");
  CHECK(find_whereabouts(here).tasks == std::vector<std::int64_t>{3, 1});
  const std::vector<std::map<std::string, std::string>> each_task_a_host{
      {{"--node-rank", "0"}}, {{"--nnodes", "4"}, {"--node-rank", "1"}}};
  for (const auto& flags : each_task_a_host) {
    here.flags = flags;
    const Whereabouts where = find_whereabouts(here);
    CHECK(where.refusal.empty());
    CHECK(where.local_rank == 0);
    CHECK(where.local_tasks == 1);
    CHECK(where.all_tasks == 0);
    CHECK(where.tasks.empty());
  }
  // A task says that this host is alone.
  here.flags = {{"--nnodes", "1"}};
  const Whereabouts this_host = find_whereabouts(here);
  CHECK(this_host.local_rank == 1);
  CHECK(this_host.all_tasks == 3);
  CHECK(this_host.tasks == std::vector<std::int64_t>{3});
  here.flags["--node-rank"] = "0";
  CHECK(find_whereabouts(here).local_tasks == 3);
  const Whereabouts one_host = found(
      "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=2 "
      "OMPI_COMM_WORLD_LOCAL_SIZE=4 LOCKSTEP_NNODES=1");
  CHECK(one_host.local_tasks == 4);
}

TEST_CASE("of one host this is host 0, alone, with nothing to tell") {
  Surroundings here = surroundings("");
  here.flags = {{"--nnodes", "1"}};
  CHECK(said(find_whereabouts(here)) == "this host alone");
  CHECK(said(find_whereabouts(here, Engine::none)) == "this host alone");
  CHECK(said(found("LOCKSTEP_NNODES=1")) == "this host alone");
  CHECK(said(found("LOCKSTEP_NNODES=1 LOCKSTEP_NODE_RANK=0")) == "this host alone");
  CHECK(said(found(kBatchShell + "LOCKSTEP_NNODES=1")) == "this host alone");
  here.variables = variables(kTask1);
  CHECK(said(find_whereabouts(here)) == "host 0 of 1, by Slurm (job 18, step 0)");
  here.flags["--node-rank"] = "1";
  CHECK(said(find_whereabouts(here)) ==
        "refused: this is host 1 of 1: hosts are numbered from 0 to 0");
}

TEST_CASE("an engine can be asked for, or none") {
  const std::string both = kTask1 + kTorchrun;
  CHECK(found(both).engine == Engine::torchrun);
  CHECK(found(both, Engine::slurm).engine == Engine::slurm);
  CHECK(said(found(both, Engine::none)) == "this host alone");
  CHECK(found(both + "LOCKSTEP_NNODES=2 LOCKSTEP_NODE_RANK=0 LOCKSTEP_RENDEZVOUS=a:1", Engine::none)
            .hosts == 1);
  CHECK(said(found(kBatchShell, Engine::slurm)) ==
        "refused: --engine slurm: in Slurm job 18 of 2 nodes, but not started by srun; --engine "
        "none or auto run without it");
  CHECK(said(found("", Engine::mpi)) ==
        "refused: --engine mpi: none of OMPI_COMM_WORLD_RANK, PMI_RANK is set; --engine none or "
        "auto run without it");
  Surroundings here = surroundings(both);
  here.flags = {{"--nnodes", "3"}, {"--node-rank", "0"}, {"--rendezvous", "a:1"}};
  CHECK(said(find_whereabouts(here, Engine::none)) ==
        "host 0 of 3, by flags or LOCKSTEP_…; they meet at a:1");

  CHECK(parse_engine("auto") == std::nullopt);
  CHECK(parse_engine("none") == Engine::none);
  CHECK(parse_engine("k8s") == Engine::kubernetes);
  CHECK(testing::message_of<ValueError>([] { (void)parse_engine("lsf"); }) ==
        "must be auto, none, slurm, mpi, torchrun, k8s, is lsf");
}

TEST_CASE("tasks of a host know each other's number") {
  const Whereabouts third = found(kCyclic + "SLURM_PROCID=3 SLURM_NODEID=0 SLURM_LOCALID=2");
  CHECK(third.local_rank == 2);
  CHECK(third.local_tasks == 3);
  CHECK(third.all_tasks == 4);
  CHECK(third.tasks == std::vector<std::int64_t>{3, 1});
  CHECK(third.one_task_a_host == "srun --ntasks-per-node=1 -c CORES");
  CHECK(third.rendezvous.size() == 8);
  CHECK(third.rendezvous[7] == "node0:62651");
  const Whereabouts uneven = found(kTorchrun + "WORLD_SIZE=3 LOCAL_WORLD_SIZE=2");
  CHECK(uneven.local_tasks == 2);
  CHECK(uneven.all_tasks == 3);
  CHECK(uneven.local_job == "node0:29500");
  CHECK(uneven.tasks.empty());
  CHECK(found(kTorchrun + "WORLD_SIZE=4 LOCAL_WORLD_SIZE=2").tasks ==
        std::vector<std::int64_t>{2, 2});
  CHECK(found(kTorchrun + "MASTER_PORT=65534 TORCHELASTIC_USE_AGENT_STORE=True").rendezvous ==
        std::vector<std::string>{"node0:65535"});
  for (const std::string host : {"::1", "[::1]"}) {
    CHECK(found(kTorchrun + "MASTER_ADDR=" + host).rendezvous[0] == "[::1]:29500");
  }
}

TEST_CASE("a job has a name that tells it from the user's others, the same on all hosts") {
  CHECK(job_of(found(kTask1)) == "Slurm, job 18, step 0");
  CHECK(job_of(found(kTask1 + "SLURM_RESTART_COUNT=1")) == "Slurm, job 18, step 0, restart 1");
  const std::string torchrun = kTorchrun + "TORCHELASTIC_RUN_ID=x7 ";
  CHECK(job_of(found(torchrun)) == "torchrun, job x7");
  CHECK(job_of(found(torchrun + "TORCHELASTIC_RESTART_COUNT=2")) == "torchrun, job x7");
  CHECK(job_of(found(kIndexedJob + "LOCKSTEP_RENDEZVOUS=a:1")).empty());
  CHECK(job_of(Whereabouts()).empty());
}

TEST_CASE("pods have ten minutes to meet, and others one") {
  const std::string own = "LOCKSTEP_NNODES=2 LOCKSTEP_NODE_RANK=1 LOCKSTEP_RENDEZVOUS=a:1 ";
  for (const std::string& variables : {kIndexedJob, kPod + own}) {
    INFO(variables);
    CHECK(found(variables).meet_timeout_s == 600);
    CHECK_THAT(found(variables).unknown_name_hint,
               ContainsSubstring("needs publishNotReadyAddresses: true"));
  }
  // torchrun's agents have met before, wherever they are.
  for (const std::string& variables : {own, kTask1, kPod + kTorchrun, std::string()}) {
    INFO(variables);
    CHECK(found(variables).meet_timeout_s == 60);
    CHECK(found(variables).unknown_name_hint.empty());
  }
}

TEST_CASE("a variable or a flag says where the hosts' secret is") {
  Surroundings here = surroundings(kTask1 + "LOCKSTEP_SECRET_FILE=/run/secret");
  CHECK(find_whereabouts(here).secret_file == "/run/secret");
  here.flags["--secret-file"] = "mine";
  CHECK(find_whereabouts(here).secret_file == "mine");
  here.flags["--nnodes"] = "1";
  CHECK(find_whereabouts(here).secret_file.empty());
}

TEST_CASE("each engine has its own way to give a task more cores, and a name") {
  CHECK_THAT(found(kTask1).more_cores, ContainsSubstring("srun -c CORES"));
  CHECK_THAT(found(kOpenMpi + "OMPI_COMM_WORLD_RANK=1").more_cores,
             ContainsSubstring("mpirun --bind-to none"));
  CHECK_THAT(found(kIndexedJob).more_cores, ContainsSubstring("resources.limits.cpu"));
  CHECK(found("").more_cores.empty());
  CHECK(name_of(found(kTask1).engine) == "slurm");
  CHECK(name_of(Engine::kubernetes) == "k8s");
  CHECK(name_of(Engine::own).empty());
}

TEST_CASE("an engine keeps what is printed, unless somebody sits at a terminal") {
  Surroundings here = surroundings(kTask1);
  CHECK(is_logged_by_engine(here));
  here.has_terminal = true;  // srun --pty train
  CHECK_FALSE(is_logged_by_engine(here));
  // Its tasks are refused, or run each for itself by --engine none.
  CHECK(is_logged_by_engine(
      surroundings("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 "
                   "OMPI_COMM_WORLD_LOCAL_SIZE=2")));
  for (const std::string& nobody :
       {std::string(), kPod, kBatchShell,
        std::string("LOCKSTEP_NNODES=2 LOCKSTEP_NODE_RANK=0 LOCKSTEP_RENDEZVOUS=a:1")}) {
    INFO(nobody);
    CHECK_FALSE(is_logged_by_engine(surroundings(nobody)));
  }
}

TEST_CASE("what was read is told with what was made of it, and nothing else") {
  const auto names_of = [](const Whereabouts& where) {
    return join(
        mapped(where.read,
               [](const ReadVariable& each) { return each.name + (each.value ? "" : "?"); }),
        " ");
  };
  CHECK(names_of(found("")) ==
        "LOCKSTEP_NNODES? WORLD_SIZE? OMPI_COMM_WORLD_RANK? PMI_RANK? SLURM_JOB_ID? "
        "JOB_COMPLETION_INDEX? LOCKSTEP_NODE_RANK?");
  CHECK(names_of(found("SLURM_JOB_ID=1", Engine::none)).empty());
  CHECK(names_of(found("PMI_RANK=0 PMI_SIZE=1 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1", Engine::mpi)) ==
        "OMPI_COMM_WORLD_RANK? PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS LOCKSTEP_NNODES? "
        "LOCKSTEP_NODE_RANK? LOCKSTEP_RENDEZVOUS?");
  Surroundings here = surroundings(kTask1);
  here.flags["--nnodes"] = "2";
  const Whereabouts where = find_whereabouts(here);
  const auto read = [&](const std::string& name) {
    return *std::ranges::find(where.read, name, &ReadVariable::name);
  };
  CHECK(where.read[0].name == "--nnodes");
  CHECK(read("SLURM_NODEID").value == "1");
  CHECK(read("SLURM_NODEID").meaning == "this host's number");
  CHECK(names_of(where).find("SLURM_NTASKS") == std::string::npos);
  CHECK(names_of(where).find("SLURM_NNODES") == std::string::npos);
  CHECK(std::ranges::none_of(where.read, [](const auto& each) { return each.meaning.empty(); }));
}
