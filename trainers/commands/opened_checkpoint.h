#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "framework/data/data.h"
#include "models/model.h"
#include "trainers/config/config.h"
#include "trainers/run/data_record.h"

namespace lockstep {

/// A checkpoint of train, with its run's config: what commands on trained models begin with.
struct OpenedCheckpoint {
  std::filesystem::path folder;  ///< no link, which may lead elsewhere before all have read it
  CheckpointInfo info = {};
  Config config = {};
  DataRecord record = {};  ///< of the run's data

  /// With this, load_shown() reads data by what was fitted when the model was trained. What is not
  /// wanted of it need not be on this machine.
  [[nodiscard]] DataContext data_context() const;
  /// The samples that the model was trained on.
  [[nodiscard]] const SampleType& sample() const { return record.fitted.sample.value(); }
  /// "the data set csv has no test set; the run had train": for messages.
  [[nodiscard]] std::string without_set(const std::string& name) const;
  /// The run's model, with the checkpoint's buffers and parameters, or their averages where it has
  /// some.
  [[nodiscard]] std::shared_ptr<Model> model() const;
};

/// Opens the checkpoint that --checkpoint has named, and compares its checksums. `overrides` win
/// over its run's config. `program` ("train eval") is for messages. ValueError without a name;
/// DataError for what can't be used.
[[nodiscard]] OpenedCheckpoint open_checkpoint(const std::string& program,
                                               const std::optional<std::string>& named,
                                               const std::vector<keys::Override>& overrides = {});

}  // namespace lockstep
