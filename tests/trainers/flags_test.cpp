#include "trainers/commands/flags.h"

#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/support/flag_rows.h"
#include "tests/support/message_of.h"
#include "trainers/commands/commands.h"

namespace lockstep {
namespace {

Flags parse_arguments(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv{"train"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return parse_flags(static_cast<int>(argv.size()), argv.data());
}

}  // namespace

TEST_CASE("flags that set keys keep their order and their values") {
  const Flags flags =
      parse_arguments({"--set", "optimizer.betas=[0.9,0.99]", "--replicas", "2", "--config",
                       "a.yaml", "--set=trainer.seed=3", "--output=--run"});
  CHECK(flags.config == "a.yaml");
  CHECK(flags.output == "--run");
  REQUIRE(flags.overrides.size() == 3);
  CHECK(flags.overrides[0].value == "[0.9,0.99]");
  CHECK(flags.overrides[1].origin == "--replicas 2");
  CHECK(flags.overrides[2].key == "trainer.seed");
}

TEST_CASE("words that are no flags are said how they are given") {
  const auto meant = [](const std::vector<std::string>& arguments, const std::string& way) {
    INFO(way);
    CHECK_THAT(testing::message_of<ValueError>([&] { (void)parse_arguments(arguments); }),
               ContainsSubstring(" (did you mean '" + way + "'?); see "));
  };
  meant({"--config", "a.yaml", "--epochs", "3"}, "--set trainer.epochs=3");
  meant({"--batch-size=8", "--config", "a.yaml"}, "--set data.batch_size=8");
  meant({"--optimizer.lr"}, "--set optimizer.lr=VALUE");
  meant({"--model", "mlp"}, "--set model.name=mlp");
  meant({"--depth", "14"}, "--set model.depth=14");
  meant({"--config", "a.yaml", "optimizer.lr=0.1"}, "--set optimizer.lr=0.1");
  meant({"--quiet", "x.yaml"}, "--config x.yaml");
  meant({"--replica", "3"}, "--replicas");
  meant({"--config", "a.yaml", "--set", "optimizer.lr", "0.1"}, "--set optimizer.lr=0.1");
  meant({"--config", "a.yaml", "--set", "lr", "0.1"}, "--set optimizer.lr=0.1");
  meant({"--config", "a.yaml", "--set", "lr", "=0.1"}, "--set optimizer.lr=0.1");
  meant({"lr=0.1"}, "--set optimizer.lr=0.1");
  meant({"+optimizer.lr=0.1"}, "--set optimizer.lr=0.1");
  meant({"--learning-rate", "0.1"}, "--set optimizer.lr=0.1");
  meant({"--trainer.max_epochs=3"}, "--set trainer.epochs=3");
  meant({"--lr="}, "--set optimizer.lr=VALUE");
  meant({"--output-dir", "a"}, "--output");
  meant({"-c", "a.yaml"}, "--config");
  meant({"-h"}, "--help");
  meant({"--config", "a.yaml", "optimizer.lr", "0.1"}, "--set optimizer.lr=0.1");
  const auto told = [](const std::vector<std::string>& arguments) {
    return testing::message_of<ValueError>([&] { (void)parse_arguments(arguments); });
  };
  CHECK(told({"-n", "4"}) == "unknown flag -n; see train --help");  // several begin so
  CHECK(told({"--config", "a.yaml", "stray"}) == "'stray' is no flag; see train --help");
}

TEST_CASE("an engine's variables say which host this is, and flags win one by one") {
  const std::vector<std::pair<const char*, const char*>> variables{
      {"OMPI_COMM_WORLD_RANK", "1"},
      {"OMPI_COMM_WORLD_SIZE", "2"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  const auto refusal = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"--config", "a.yaml"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return testing::message_of<ValueError>([&] { (void)parse_arguments(arguments); });
  };
  const Flags flags = parse_arguments(
      {"--config", "a.yaml", "--rendezvous", "node0:29500", "--secret-file", "secret"});
  CHECK(flags.where.engine == engines::Engine::mpi);
  CHECK(flags.hosts.count == 2);
  CHECK(flags.hosts.rank == 1);
  CHECK(flags.hosts.rendezvous == "node0:29500");
  CHECK(flags.hosts.secret_file == "secret");
  CHECK(flags.hosts.meet_timeout == std::chrono::seconds(60));
  CHECK(parse_arguments({"--config", "a.yaml", "--rendezvous", "a:1", "--meet-timeout", "5"})
            .hosts.meet_timeout == std::chrono::seconds(5));
  CHECK_THAT(refusal({"--rendezvous", "a:1", "--nnodes", "3"}),
             ContainsSubstring("mpirun has started 2 hosts: --node-rank I says which of the 3"));
  CHECK(parse_arguments(
            {"--config", "a.yaml", "--rendezvous", "a:1", "--nnodes", "3", "--node-rank", "2"})
            .hosts.count == 3);
  CHECK_THAT(refusal({}), ContainsSubstring("does not say where the first is: add --rendezvous"));
  CHECK_THAT(refusal({"--engine", "slurm"}), ContainsSubstring("SLURM_JOB_ID is not set"));
  CHECK(refusal({"--engine", "lsf"}) ==
        "--engine: must be auto, none, slurm, mpi, torchrun, k8s, is lsf");
  CHECK(parse_arguments({"--config", "a.yaml", "--engine", "none"}).hosts.count == 1);
  CHECK(refusal({"--engine", "none", "--meet-timeout", "5"}) ==
        "--meet-timeout needs --nnodes of at least 2");
  CHECK(refusal({"--engine", "none", "--nnodes", "2"}) ==
        "--nnodes needs --node-rank I, this host's number");
  CHECK(refusal({"--engine", "none", "--node-rank", "1"}) ==
        "--node-rank needs --nnodes H, the number of hosts");
  ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
  CHECK(refusal({}) ==
        "mpirun has started 2 tasks on 1 host and does not tell of which job, by which these would "
        "find each other. One on each host runs all its replicas: mpirun -N 1 --bind-to none train "
        "…; --engine none makes each a run of its own");
  CHECK(refusal({"--nnodes", "1"}) == refusal({}));
  ::setenv("PMIX_NAMESPACE", "1312817153", 1);
  CHECK(parse_arguments({"--config", "a.yaml"}).where.local_tasks == 2);
  ::unsetenv("PMIX_NAMESPACE");
  for (const auto& [name, value] : variables) ::unsetenv(name);
}

TEST_CASE("the page's table of flags is train's") {
  Flags flags;
  CHECK(testing::flag_rows(testing::read_page("trainers/README.md")) ==
        testing::flag_rows(train_command_line(flags).flags));
}

TEST_CASE("the README has every command of train") {
  const std::string page = testing::read_page("README.md").text;
  for (const Command& command : commands()) {
    INFO(command.name);
    CHECK((page.find("`train " + command.name) != std::string::npos ||
           page.find("`" + command.name + "`") != std::string::npos));
  }
}

TEST_CASE("thousands of flags that set keys are refused") {
  std::vector<std::string> arguments{"--config", "a.yaml"};
  for (int i = 0; i < 1000; ++i) arguments.push_back("--set=a.k" + std::to_string(i) + "=1");
  CHECK(parse_arguments(arguments).overrides.size() == 1000);
  arguments.insert(arguments.end(), {"--launch", std::string(1000, 'x')});
  CHECK(testing::message_of<ValueError>([&] { (void)parse_arguments(arguments); }) ==
        "1001 flags set keys of the config; 1000 may: write a config");
}

}  // namespace lockstep
