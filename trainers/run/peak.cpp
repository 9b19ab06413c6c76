#include "trainers/run/peak.h"

#include <fstream>
#include <string>
#include <system_error>

#include <nlohmann/json.hpp>

#include "framework/base/cores.h"
#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/base/user_folder.h"
#include "framework/maps/machine.h"
#include "framework/storage/file.h"

namespace fs = std::filesystem;

namespace lockstep {
namespace {

fs::path peaks_file() {
  const fs::path folder = user_folder("XDG_CACHE_HOME", ".cache");
  return folder.empty() ? folder : folder / "peaks.json";
}

// Of which machine and type a peak is.
std::string peak_name(c10::ScalarType type) {
  return str(maps::cpu_model(), ", ", counted(usable_cores(), "core"), ", ",
             maps::libtorch_version(), ", ", maps::blas().name, ", ", c10::toString(type));
}

// By such names. None where there is no file; discarded where it is none of these.
nlohmann::json peaks_in(const fs::path& file) {
  std::error_code missing;
  if (file.empty() || !fs::exists(file, missing)) return nlohmann::json::object();
  std::ifstream text(file);
  nlohmann::json peaks = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  return peaks.is_object() ? peaks : nlohmann::json(nlohmann::json::value_t::discarded);
}

}  // namespace

std::optional<double> known_peak(c10::ScalarType type) {
  const fs::path file = peaks_file();
  const nlohmann::json peaks = peaks_in(file);
  if (peaks.is_discarded()) {
    log_warning(str(file.string(), " is damaged: `bench peak` writes it anew"));
    return std::nullopt;
  }
  const auto found = peaks.find(peak_name(type));
  if (found == peaks.end() || !found->is_number() || !(*found > 0)) return std::nullopt;
  return found->get<double>();
}

fs::path keep_peak(c10::ScalarType type, double flops_per_s) {
  const fs::path file = peaks_file();
  require<Error>(!file.empty(), "neither XDG_CACHE_HOME nor HOME says where the user's cache is");
  nlohmann::json peaks = peaks_in(file);
  if (peaks.is_discarded()) peaks = nlohmann::json::object();
  peaks[peak_name(type)] = flops_per_s;
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  write_file_atomically(file, peaks.dump(2) + "\n");
  return file;
}

}  // namespace lockstep
