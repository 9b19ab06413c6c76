#include "trainers/commands/opened_checkpoint.h"

#include <system_error>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/storage/checkpoint_folder.h"
#include "trainers/config/config_options.h"
#include "trainers/run/evaluate.h"
#include "trainers/run/resume.h"

namespace lockstep {

DataContext OpenedCheckpoint::data_context() const {
  DataContext context = lockstep::data_context(config);
  context.fitted = record.fitted;
  return context;
}

std::shared_ptr<Model> OpenedCheckpoint::model() const {
  try {
    return model_of_checkpoint(config, sample(), folder);
  } catch (const Error&) {
    if (std::filesystem::exists(folder)) throw;
    throw DataError(str(folder.string(),
                        " was removed since it was opened: a run keeps checkpoint.keep of the "
                        "newest; try again, or copy it first"));
  }
}

std::string OpenedCheckpoint::without_set(const std::string& name) const {
  const std::vector<std::string> names{kTrainSet, kValidationSet, kTestSet};
  const auto is_there = [&](const std::string& set) { return record.sets.contains(set); };
  return str("the data set ", config.data.name, " has no ", name, " set; the run had ",
             join(filtered(names, is_there)));
}

OpenedCheckpoint open_checkpoint(const std::string& program,
                                 const std::optional<std::string>& named,
                                 const std::vector<keys::Override>& overrides) {
  require(named.has_value(), "--checkpoint DIR is needed; see ", program, " --help");
  std::error_code error;
  const auto folder = storage::CheckpointFolder::resolved(*named);
  const auto canonical = std::filesystem::canonical(folder, error);
  OpenedCheckpoint opened{.folder = error ? folder : canonical};
  try {
    opened.info = checkpoint_info(opened.folder);
    opened.config = config_of_checkpoint(opened.folder, opened.info, overrides);
    verify_checkpoint(opened.folder);
    opened.record = data_record(opened.folder, opened.info);
  } catch (const Error&) {
    // Where its run has removed it, the link leads to a newer one.
    const bool is_there = std::filesystem::exists(opened.folder);
    if (is_there || storage::CheckpointFolder::resolved(*named) == folder) throw;
    return open_checkpoint(program, named, overrides);
  }
  return opened;
}

}  // namespace lockstep
