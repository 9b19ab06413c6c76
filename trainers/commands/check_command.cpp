#include <cstdint>
#include <cstdio>
#include <set>
#include <string>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/data/data.h"
#include "framework/tree/error_place.h"
#include "trainers/commands/flags.h"
#include "trainers/commands/shown_data.h"
#include "trainers/config/config.h"
#include "trainers/config/config_options.h"
#include "trainers/run/check_job.h"

namespace lockstep {
namespace {

constexpr const char* kCheckHelp =
    R"(It prints what a run would say of its data, a line for each damaged file, row or value, and how many
samples each set has. Of a table or an array with many wrong samples the first 100 are printed.
Every sample is made once and dropped, in data.threads threads, or one a core. A sample is damaged
if it can't be made, if a value is not finite, or if its target is no class. What a run would refuse
before its first step, such as metrics that do not fit the data, is told, too. Nothing is trained or
written. Exit status: 0 if nothing is damaged or refused, 2 if something is.
)";

// A file with more wrong values is most likely not what was meant.
constexpr std::int64_t kMostLines = 100;

// Prints what is wrong, each once, and counts it.
class Findings {
 public:
  explicit Findings(ShownSearch& shown) : shown_(shown) {}

  // What keeps a file or set from being loaded.
  void add(const DataError& error) {
    if (!known_.insert(error.what()).second) return;
    shown_.print(error.what());
    ++count_;
  }

  // Makes all samples of a set of the source.
  void look_at(const std::string& source, const std::string& name, const Dataset& set,
               const DamageSearch& search) {
    placed([&] { return str("the ", name, " set of the data '", source, "'"); },
           [&] { count_damaged(name, set, search); });
  }

  [[nodiscard]] std::int64_t count() const { return count_; }

 private:
  void count_damaged(const std::string& name, const Dataset& set, const DamageSearch& search) {
    // Files are all named. Of values there may be millions.
    const bool has_files = !set.sample_name(0).empty();
    std::int64_t damaged = 0;
    find_damaged(set, search, [&](const DamagedSample& sample) {
      ++damaged;
      if (has_files || damaged <= kMostLines) {
        shown_.print(str(name, ", sample ", sample.index, ": ", sample.reason));
      }
    });
    if (!has_files && damaged > kMostLines) {
      shown_.print(str(name, ": ", damaged - kMostLines, " more are damaged"));
    }
    shown_.print(str(name, ": ", counted(set.size(), "sample"), ", ",
                     damaged == 0 ? "none" : std::to_string(damaged), " damaged"));
    count_ += damaged;
  }

  ShownSearch& shown_;
  std::set<std::string> known_;
  std::int64_t count_ = 0;
};

DataSets load(const Config& config, Findings& findings, const DamageSearch& search) {
  DataContext context = data_context(config);
  context.search = search;
  context.keeps_damaged = true;
  context.on_damage = [&](const DataError& error) { findings.add(error); };
  try {
    return load_data(config.data, context);
  } catch (const DataError& error) {
    findings.add(error);
    return {};
  }
}

}  // namespace

int run_check(int argc, const char* const* argv) {
  const auto read = config_of(
      argc, argv,
      {.program = program_name("check"),
       .what = "Reads all files of all sets of a config once, and names all that are damaged.",
       .more = kCheckHelp});
  if (!read) return 0;
  const Config& config = *read;
  ShownSearch shown(stdout, /*quiet=*/false);
  DamageSearch search = shown.of(data_context(config).search);
  search.ignored = data_context(config).ignored;
  Findings findings(shown);
  const DataSets data = load(config, findings, search);
  if (data.train) {
    for (const std::string& line : data_lines(config, data)) shown.print(line);
  }
  for (const auto& [name, set] : named_sets(data)) {
    findings.look_at(config.data.name, name, *set, search);
  }
  // What a run would say before its first step.
  const auto check_run = [&] {
    check_job(config, data);
    check_initial_weights(config, data);
  };
  if (findings.count() == 0) {
    check_run();
    return print("nothing is damaged\n");
  }
  try {
    if (data.train) check_run();
  } catch (const ValueError& error) {
    shown.print(error.what());
  } catch (const Error&) {
    // Its cause is something damaged, which is told already.
  }
  throw DataError(str(counted(findings.count(), "file or value", "files or values"),
                      findings.count() == 1 ? " is" : " are", " damaged, as said above"));
}

}  // namespace lockstep
