#include "trainers/bench/peers.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <utility>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/replicas/worker_process.h"
#include "trainers/bench/program.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

// Where the programs of peers are: beside the binary in a build, under libexec/ where installed.
fs::path peer_program(const std::string& name) {
  const fs::path binary = fs::read_symlink("/proc/self/exe");
  const fs::path built = binary.parent_path() / "bench_peers";
  const fs::path installed = binary.parent_path().parent_path() / "libexec/lockstep/bench_peers";
  return (fs::exists(built) ? built : installed) / name;
}

struct Probed {
  bool works = false;
  std::string last_line;
};

// Runs `command --version`, which prints a version, or fails and says why in its last line. Once:
// several systems are of one library, which may take seconds to load.
Probed probe(const Workplace& workplace, std::vector<std::string> command) {
  static std::map<std::vector<std::string>, Probed> known;
  const auto before = known.find(command);
  if (before != known.end()) return before->second;
  Probed& probed = known[command];
  command.emplace_back("--version");
  auto [output, input] = make_pipe();
  const pid_t pid = start({.arguments = command}, input.get());
  input.close();
  std::string text;
  Read read = Read::some;
  while (read == Read::some) read = workplace.read_some(output.get(), text);
  if (read == Read::nothing) {
    ::kill(pid, SIGKILL);
    text += "\nit has not ended in time";
  }
  output.close();
  int status = 0;
  probed.works = ::waitpid(pid, &status, 0) == pid && status == 0;
  text.erase(text.find_last_not_of('\n') + 1);
  probed.last_line = text.substr(text.rfind('\n') + 1);
  return probed;
}

// "2.15.0a0" becomes "2.15".
std::string short_version(const std::string& version) {
  const std::size_t first = version.find('.');
  return version.substr(
      0, version.find_first_not_of("0123456789", first == std::string::npos ? 0 : first + 1));
}

using Programs = std::function<std::vector<Program>(std::int64_t replicas, const fs::path& folder)>;

void add_openmpi(const Workplace& workplace, Contestants& found) {
  const std::string program = peer_program("openmpi");
  if (!fs::exists(program)) {
    found.left_out.push_back(
        {"openmpi", "there was no MPI when bench was built (Debian: libopenmpi-dev)"});
    return;
  }
  const Probed library = probe(workplace, {program});
  const Probed launcher = probe(workplace, {"mpirun"});
  const std::string name = "Open MPI ";
  if (!library.works || library.last_line.rfind(name, 0) != 0) {
    found.left_out.push_back(
        {"openmpi", "the MPI that bench was built with is another: " + library.last_line});
  } else if (!launcher.works) {
    found.left_out.push_back({"openmpi", "mpirun does not run: " + launcher.last_line});
  } else {
    const auto programs = [program](std::int64_t replicas, const fs::path& folder) {
      return std::vector<Program>{
          {.arguments = {"mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl",
                         "self,vader", "-np", str(replicas), program, folder},
           .environment = {{"TMPDIR", folder}}}};
    };
    found.systems.push_back(
        {.name = "openmpi",
         .label = "openmpi " + short_version(library.last_line.substr(name.size())),
         .version = library.last_line,
         .own = false,
         .programs = programs});
  }
}

// A peer that is a script: `programs` makes of an interpreter what runs it.
void add_script(const Workplace& workplace, const std::string& name, const std::string& library,
                const std::string& script, const std::vector<std::string>& pythons,
                const std::function<Programs(const std::string& python)>& programs,
                Contestants& found) {
  for (const std::string& python : pythons) {
    const Probed version = probe(workplace, {python, peer_program(script)});
    if (!version.works) {
      found.left_out.push_back({name, str(python, " cannot run it: ", version.last_line)});
      continue;
    }
    const std::string label = name + " " + short_version(version.last_line);
    const bool there = std::any_of(found.systems.begin(), found.systems.end(),
                                   [&](const System& other) { return other.label == label; });
    if (there) {
      found.left_out.push_back(
          {name, str(python, " has ", library, " ", version.last_line, ", as another has")});
      continue;
    }
    found.systems.push_back({.name = name,
                             .label = label,
                             .version = str(library, " ", version.last_line, ", ", python),
                             .own = false,
                             .one_controller = name == "jax",
                             .programs = programs(python)});
  }
}

// Or scripts would leave __pycache__ where they are.
const std::pair<const std::string, std::string> kNoCaches{"PYTHONDONTWRITEBYTECODE", "1"};

// Their best: a process a replica that meets the others on loopback, with a thread for its math.
std::map<std::string, std::string> torch_environment() {
  return {{"GLOO_SOCKET_IFNAME", "lo"}, {"OMP_NUM_THREADS", "1"}, kNoCaches};
}

// A TCP port that nobody listens at.
int free_port() {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (!socket.open() || ::bind(socket.get(), any, size) != 0 ||
      ::getsockname(socket.get(), any, &size) != 0) {
    throw Error(str("cannot find a free port: ", std::strerror(errno)));
  }
  return ntohs(address.sin_port);
}

Programs c10d_programs(const std::string& python) {
  return [python](std::int64_t replicas, const fs::path& folder) {
    std::vector<Program> programs;
    for (std::int64_t rank = 0; rank < replicas; ++rank) {
      programs.push_back(
          {.arguments = {python, peer_program("c10d.py"), str(rank), str(replicas), folder},
           .environment = torch_environment()});
    }
    return programs;
  };
}

Programs jax_programs(const std::string& python) {
  return [python](std::int64_t replicas, const fs::path& folder) {
    return std::vector<Program>{
        {.arguments = {python, peer_program("jax_pmap.py"), str(replicas), folder},
         .environment = {kNoCaches}}};
  };
}

std::function<Programs(const std::string& python)> training_programs(const std::string& way) {
  return [way](const std::string& python) {
    return [way, python](std::int64_t replicas, const fs::path& folder) {
      std::vector<Program> programs;
      for (std::int64_t rank = 0; rank < replicas; ++rank) {
        programs.push_back({.arguments = {python, peer_program("torch_training.py"), way, str(rank),
                                          str(replicas), folder},
                            .environment = torch_environment()});
      }
      return programs;
    };
  };
}

// Redirections of a tenth replica, which there is none of: without any, torchrun 1.13 fails on
// Python 3.11, whose enumerations have no member for 0.
Programs torchrun_programs(const std::string& python) {
  return [python](std::int64_t replicas, const fs::path&) {
    return std::vector<Program>{
        {.arguments = {python, "-m", "torch.distributed.run", "--nproc_per_node", str(replicas),
                       "--master_addr", "127.0.0.1", "--master_port", str(free_port()),
                       "--monitor_interval", "0.1", "--redirects", "9:3", "--tee", "9:3",
                       peer_program("torch_startup.py")},
         .environment = torch_environment()}};
  };
}

}  // namespace

std::vector<std::string> peer_names() {
  return {"c10d", "openmpi", "jax"};
}

void add_peer(const Workplace& workplace, const std::string& name,
              const std::vector<std::string>& pythons, Contestants& found) {
  const auto script = [&](const std::string& library, const std::string& program,
                          const std::function<Programs(const std::string&)>& programs) {
    add_script(workplace, name, library, program, pythons, programs, found);
  };
  if (name == "c10d") script("PyTorch", "c10d.py", c10d_programs);
  if (name == "openmpi") add_openmpi(workplace, found);
  if (name == "plain" || name == "ddp" || name == "zero") {
    script("PyTorch", "torch_training.py", training_programs(name));
  }
  if (name == "torchrun") script("PyTorch", "torch_training.py", torchrun_programs);
  if (name == "jax") script("JAX", "jax_pmap.py", jax_programs);
}

}  // namespace lockstep::bench
