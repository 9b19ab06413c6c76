#include "framework/maps/machine.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <torch/version.h>

#include "framework/base/cores.h"
#include "framework/base/mutex.h"
#include "framework/base/text.h"

namespace lockstep::maps {
namespace {

thread_local std::int64_t this_thread_math_threads = 0;

// Returns the file of LibTorch's matrix product, behind the links by which Debian picks it.
std::string blas_file() {
  const void* const product = ::dlsym(RTLD_DEFAULT, "sgemm_");
  Dl_info info{};
  if (product == nullptr || ::dladdr(product, &info) == 0) return "";
  std::error_code ignored;
  const auto path = std::filesystem::canonical(info.dli_fname, ignored);
  return path.empty() ? info.dli_fname : path.string();
}

// Returns the text of one of OpenBLAS's functions; "" if there is no such function.
std::string openblas_says(const char* function) {
  using Get = char* (*)();
  const auto get = reinterpret_cast<Get>(::dlsym(RTLD_DEFAULT, function));
  return get == nullptr ? "" : get();
}

// Returns OpenBLAS's name for kernels that this CPU runs far faster than those for `core`, or "" if
// there are none. An OpenBLAS that does not know a new CPU takes kernels for a very old one.
std::string better_core(const std::string& core) {
#ifdef __x86_64__
  constexpr const char* kOld[] = {"Prescott",    "Core2",     "Penryn",   "Nehalem",
                                  "Sandybridge", "Barcelona", "Bulldozer"};
  if (std::ranges::count(kOld, core) == 0) return "";
  if (__builtin_cpu_supports("avx512bw")) return "SkylakeX";
  if (__builtin_cpu_supports("avx2")) return "Haswell";
#endif
  return "";
}

Blas openblas(const std::string& threads) {
  std::string version = openblas_says("openblas_get_config");  // "OpenBLAS 0.3.21 DYNAMIC_ARCH …"
  version = version.substr(0, version.find(' ', version.find(' ') + 1));
  if (version.empty()) version = "OpenBLAS";
  const std::string core = openblas_says("openblas_get_corename");
  std::vector<std::string> parts{threads, core};
  std::erase(parts, "");
  Blas blas{parts.empty() ? version : str(version, " (", join(parts), ")"), ""};
  if (const std::string better = better_core(core); !better.empty()) {
    blas.warning = str(version, " computes as for an old CPU, ", core,
                       ", and several times slower than it could: set OPENBLAS_CORETYPE=", better,
                       " in the environment");
  }
  return blas;
}

}  // namespace

std::int64_t math_threads(std::int64_t requested, std::int64_t replicas_on_host) {
  if (requested > 0) return requested;
  return std::max<std::int64_t>(1, usable_cores() / std::max<std::int64_t>(1, replicas_on_host));
}

std::int64_t own_math_threads() noexcept {
  return this_thread_math_threads;
}

void set_math_threads(std::int64_t threads) {
  this_thread_math_threads = threads;
  // In a forked process the first call, also of get_num_threads(), replaces the pool of its parent,
  // and LibTorch shows other threads no pool meanwhile.
  static Mutex mutex;
  const MutexLock lock(mutex);
  if (at::get_num_threads() == threads) return;
  at::set_num_threads(static_cast<int>(threads));
}

Blas blas() {
  const std::string file = blas_file();
  const auto in_file = [&](std::string_view part) { return file.find(part) != std::string::npos; };
  if (in_file("openblas-openmp")) return openblas("OpenMP");
  if (in_file("openblas-pthread")) {
    Blas blas = openblas("pthreads");
    blas.warning = str("this BLAS takes all cores whatever is asked; install libopenblas0-openmp",
                       blas.warning.empty() ? "" : "; ", blas.warning);
    return blas;
  }
  if (in_file("openblas")) return openblas("");
  if (in_file("mkl")) return {"MKL", ""};
  if (in_file("blis")) return {"BLIS", ""};
  if (in_file("atlas")) return {"ATLAS", ""};
  if (in_file("libtorch")) return {"LibTorch's own", ""};
  if (in_file("/blas/")) {
    return {"the reference BLAS",
            "the reference BLAS is some thirty times slower than OpenBLAS; install "
            "libopenblas0-openmp"};
  }
  return {file.empty() ? "LibTorch's own" : file, ""};
}

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("model name")) continue;
    return line.substr(std::min(line.find_first_not_of(" \t", line.find(':') + 1), line.size()));
  }
  return "";
}

std::vector<std::string> command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(in, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

std::string cpu_capability() {
  // All versions of LibTorch have it in this text only.
  constexpr std::string_view kLine = "CPU capability usage: ";
  const std::string config = at::show_config();
  const std::size_t line = config.find(kLine);
  if (line == std::string::npos) return "";
  const std::size_t begin = line + kLine.size();
  return config.substr(begin, config.find('\n', begin) - begin);
}

std::string libtorch_version() {
  return std::string("LibTorch ") + TORCH_VERSION;
}

}  // namespace lockstep::maps
