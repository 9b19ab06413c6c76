#include "trainers/commands/job_hosts.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <vector>

#include <sys/stat.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/text.h"
#include "framework/data/fingerprint.h"
#include "framework/storage/checksum.h"

namespace lockstep {
namespace {

// Over all samples of a data set, as this host reads them: another library may decode a picture
// otherwise, which Dataset::fingerprint() does not see. Of one that is slow kSpread samples, evenly
// spread, and their number stand for all.
std::string checksum_of(const Dataset* data) {
  if (data == nullptr) return "none";
  constexpr std::int64_t kSpread = 1000;
  data::Fingerprint made(*data);
  made.add_samples(*data, data->is_slow() ? kSpread : data->size());
  return made.text();
}

// Begins with a checksum: of long texts only the beginning is compared.
std::string what_is_left_out(const Dataset& data) {
  const std::vector<std::string> names = data.left_out();
  if (names.empty()) return "nothing";
  storage::Checksum sum;
  for (const std::string& name : names) {
    sum.add(std::as_bytes(std::span(name.c_str(), name.size() + 1)));  // with the zero behind it
  }
  return str(names.size(), " (", sum.text(), "): ", listed(names, 10));
}

std::map<std::string, std::string> same_on_all(const Flags& flags, const Config& config,
                                               const DataSets& data, const RunOptions& options) {
  std::map<std::string, std::string> same = values_of(config);
  for (const std::string& key : place_keys(config)) same.erase(key);  // what is there counts
  for (const auto& [name, set] : named_sets(data)) {
    same[str("what is damaged and left out of the ", name, " data")] = what_is_left_out(*set);
  }
  same["the training data's checksum"] = checksum_of(data.train.get());
  same["the validation data's checksum"] = checksum_of(data.validation.get());
  same["the test data's checksum"] = checksum_of(data.test.get());
  same["--output"] = flags.output.string();
  same["--stop-after"] = str(flags.stop_after);
  same["the checkpoint that it goes on from"] =
      options.resume ? options.resume->checkpoint.filename().string() : "none";
  return same;
}

// By which another host knows whether it sees the same file: its number and time of change there.
std::string identity_of(const std::filesystem::path& file) {
  struct stat found {};
  if (::stat(file.c_str(), &found) != 0) return "none";
  return str(found.st_ino, ':', found.st_mtim.tv_sec, ':', found.st_mtim.tv_nsec);
}

}  // namespace

HostOptions host_options(const Flags& flags, const Config& config, const DataSets& data,
                         RunOptions& options, const std::function<void()>& claim,
                         const std::function<void()>& begin) {
  HostOptions hosts = flags.hosts;
  hosts.link = config.launch.hosts.link;
  hosts.allow_mixed = config.launch.hosts.allow_mixed;
  hosts.same = same_on_all(flags, config, data, options);
  const bool saves = config.checkpoint.saves();
  hosts.prepare = [&options, claim, begin, saves, is_first = hosts.rank == 0,
                   rank = hosts.rank](const std::string& of_host_0) {
    const auto file = [&] { return options.output / "config.yaml"; };
    if (is_first) {
      claim();
      std::error_code error;
      options.output = std::filesystem::absolute(options.output, error);
      require(!error,
              "output folder: the current folder can't be read: ", text_of_errno(error.value()));
      begin();
      return str(identity_of(file()), ' ', options.output.string());
    }
    const std::size_t space = of_host_0.find(' ');
    options.output = of_host_0.substr(space + 1);
    require(!saves || identity_of(file()) == of_host_0.substr(0, space), "the output folder ",
            options.output.string(),
            " is not the one that host 0 has made: checkpoints need a "
            "folder that all hosts share; name one by --output, or save none by --set "
            "checkpoint=none");
    begin();
    return std::string();
  };
  return hosts;
}

}  // namespace lockstep
