#include "trainers/bench/peers/peers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "trainers/bench/testing/free_port.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

fs::path peer_program(const std::string& name) {
  return file_of_bench("bench_peers", "libexec/lockstep/bench_peers") / name;
}

// Runs `command --version`, which prints a version, or fails and says why in its last line. Once:
// several systems are of one library, which may take seconds to load.
ProgramEnd probe(const Workplace& workplace, Words command) {
  static std::map<Words, ProgramEnd> known;
  const auto [probed, is_new] = known.try_emplace(command);
  command.emplace_back("--version");
  if (is_new) probed->second = workplace.run({.arguments = command});
  return probed->second;
}

// "2.15.0a0" becomes "2.15".
std::string short_version(const std::string& version) {
  const std::size_t first = version.find('.');
  return version.substr(
      0, version.find_first_not_of("0123456789", first == std::string::npos ? 0 : first + 1));
}

void add_openmpi(const Workplace& workplace, Contestants& found) {
  const std::string program = peer_program("openmpi");
  const auto leave_out = [&](const std::string& reason) {
    found.left_out.push_back({"openmpi", reason});
  };
  if (!fs::exists(program))
    return leave_out("there was no MPI when bench was built (Debian: libopenmpi-dev)");
  const ProgramEnd library = probe(workplace, {program});
  const std::string version = library.last_line();
  const ProgramEnd launcher = probe(workplace, {"mpirun"});
  const std::string name = "Open MPI ";
  if (library.status != 0 || !version.starts_with(name))
    return leave_out("the MPI that bench was built with is another: " + version);
  if (launcher.status != 0) return leave_out("mpirun does not run: " + launcher.last_line());
  found.systems.push_back(
      {.facts = {.name = "openmpi",
                 .label = "openmpi " + short_version(version.substr(name.size())),
                 .version = version},
       .programs = [program](std::int64_t replicas, const fs::path& folder) {
         return std::vector<Program>{
             {.arguments = {"mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl",
                            "self,vader", "-np", str(replicas), program, folder},
              .environment = {{"TMPDIR", folder}}}};
       }});
}

// Or scripts would leave __pycache__ where they are.
const std::pair<const std::string, std::string> kNoCaches{"PYTHONDONTWRITEBYTECODE", "1"};

// Their best: a process a replica that meets the others on loopback, with a thread for its math.
const std::map<std::string, std::string> kTorchEnvironment{
    {"GLOO_SOCKET_IFNAME", "lo"}, {"OMP_NUM_THREADS", "1"}, kNoCaches};

// Redirections of a tenth replica, which there is none of: without any, torchrun 1.13 fails on
// Python 3.11, whose enumerations have no member for 0.
Program torchrun(const std::string& python, std::int64_t replicas) {
  return {.arguments = {python, "-m", "torch.distributed.run", "--nproc_per_node", str(replicas),
                        "--master_addr", "127.0.0.1", "--master_port", str(testing::free_port()),
                        "--monitor_interval", "0.1", "--redirects", "9:3", "--tee", "9:3",
                        peer_program("torch_startup.py")},
          .environment = kTorchEnvironment};
}

// What runs a system, and tells its library's version.
struct Script {
  std::string file;
  std::string library = "PyTorch";  // as it is called
  bool takes_name = true;           // of the system, as its first argument
};

Script script_of(const std::string& name) {
  if (name == "pandas") return {"table.py", "pandas"};
  if (name == "loadtxt") return {"table.py", "NumPy"};
  if (name == "c10d") return {"c10d.py", "PyTorch", false};
  if (name == "jax") return {"jax_pmap.py", "JAX", false};
  return {name == "dcp" || name == "dcp_async" || name == "torch_save" ? "torch_checkpoint.py"
                                                                       : "torch_training.py"};
}

Programs programs_of(const std::string& name, const std::string& python) {
  return [=](std::int64_t replicas, const fs::path& folder) -> std::vector<Program> {
    if (name == "torchrun") return {torchrun(python, replicas)};
    const Script script = script_of(name);
    Words command{python, peer_program(script.file)};
    if (script.takes_name) command.push_back(name);
    if (name == "jax") command.insert(command.end(), {str(replicas), folder});
    if (script.library != "PyTorch") return {{command, {kNoCaches}}};
    std::vector<Program> programs;
    for (std::int64_t rank = 0; rank < replicas; ++rank) {
      Words& words = programs.emplace_back(Program{command, kTorchEnvironment}).arguments;
      words.insert(words.end(), {str(rank), str(replicas), folder});
    }
    return programs;
  };
}

void add_script(const Workplace& workplace, const std::string& name, const std::string& python,
                Contestants& found) {
  const auto& [file, library, takes_name] = script_of(name);
  Words command{python, peer_program(file)};
  // Not every version can, or not every interpreter has both libraries.
  if (name == "fsdp" || file == "table.py") command.push_back(name);
  const ProgramEnd probed = probe(workplace, command);
  const std::string version = probed.last_line();
  if (probed.status != 0) {
    found.left_out.push_back({name, str(python, " cannot run it: ", version)});
    return;
  }
  const std::string label = name + " " + short_version(version);
  const auto label_of = [](const System& system) { return system.facts.label; };
  if (std::ranges::count(found.systems, label, label_of) > 0) {
    found.left_out.push_back(
        {name, str(python, " has ", library, " ", version, ", as another has")});
    return;
  }
  found.systems.push_back(
      {.facts = {.name = name, .label = label, .version = str(library, " ", version, ", ", python)},
       .programs = programs_of(name, python),
       .one_controller = name == "jax"});
}

}  // namespace

void add_peer(const Workplace& workplace, const std::string& name, const Words& pythons,
              Contestants& found) {
  if (name == "openmpi") return add_openmpi(workplace, found);
  for (const std::string& python : pythons) add_script(workplace, name, python, found);
}

}  // namespace lockstep::bench
