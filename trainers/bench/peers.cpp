#include "trainers/bench/peers.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/text.h"

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

std::string in_quotes(const std::string& text) {
  std::string result = "'";
  for (const char letter : text) result += letter == '\'' ? "'\\''" : std::string(1, letter);
  return result + "'";
}

struct Probed {
  bool works = false;
  std::string last_line;
};

// Runs `command --version`, which prints a version, or fails and says why in its last line.
Probed probe(std::vector<std::string> command) {
  command.emplace_back("--version");
  for (std::string& word : command) word = in_quotes(word);
  FILE* const output = ::popen((join(command, " ") + " 2>&1 </dev/null").c_str(), "re");
  if (output == nullptr) throw Error(str("cannot run ", command[0]));
  Probed probed;
  std::string text;
  std::array<char, 4096> buffer{};
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), output)) {
    text.append(buffer.data(), count);
  }
  probed.works = ::pclose(output) == 0;
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

void add_openmpi(Contestants& found) {
  const std::string program = peer_program("openmpi");
  if (!fs::exists(program)) {
    found.left_out.push_back(
        {"openmpi", "there was no MPI when bench was built (Debian: libopenmpi-dev)"});
    return;
  }
  const Probed library = probe({program});
  const Probed launcher = probe({"mpirun"});
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
void add_script(const std::string& name, const std::string& library, const std::string& script,
                const std::vector<std::string>& pythons,
                const std::function<Programs(const std::string& python)>& programs,
                Contestants& found) {
  for (const std::string& python : pythons) {
    const Probed version = probe({python, peer_program(script)});
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

Programs c10d_programs(const std::string& python) {
  return [python](std::int64_t replicas, const fs::path& folder) {
    std::vector<Program> programs;
    for (std::int64_t rank = 0; rank < replicas; ++rank) {
      programs.push_back(
          {.arguments = {python, peer_program("c10d.py"), str(rank), str(replicas), folder},
           .environment = {{"GLOO_SOCKET_IFNAME", "lo"}, {"OMP_NUM_THREADS", "1"}, kNoCaches}});
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

}  // namespace

std::vector<std::string> peer_names() {
  return {"c10d", "openmpi", "jax"};
}

void add_peer(const std::string& name, const std::vector<std::string>& pythons,
              Contestants& found) {
  if (name == "c10d") add_script(name, "PyTorch", "c10d.py", pythons, c10d_programs, found);
  if (name == "openmpi") add_openmpi(found);
  if (name == "jax") add_script(name, "JAX", "jax_pmap.py", pythons, jax_programs, found);
}

}  // namespace lockstep::bench
