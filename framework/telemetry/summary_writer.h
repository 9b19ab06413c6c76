#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include <ATen/core/Tensor.h>

#include "framework/base/non_copyable.h"

namespace lockstep {

namespace telemetry {
class EventFiles;
}

/// One value of SummaryWriter::add_hparams().
using HparamValue = std::variant<bool, std::int64_t, double, std::string>;

/// Every field may be left out of a designated initializer.
struct SummaryWriterOptions {
  /// Of a run that goes on: its next step. TensorBoard no longer shows what earlier files of the
  /// folder have of this step and later ones.
  std::optional<std::int64_t> purge_step{};
  /// A file that can't be written is no Error: a warning says so once, and nothing more is written.
  bool warns = false;
};

/// Writes what TensorBoard shows (`tensorboard --logdir FOLDER`), in the names and the meaning of
/// PyTorch's SummaryWriter. A folder is a run, and each writer begins a file in it; one replica
/// should have it, as by axis_index("data") == 0. What is added is in the file when the call
/// returns: a process that is killed leaves a file that can be read.
///
/// `walltime` is in seconds since 1970, by default now. Texts that are no UTF-8 are mended. Any
/// thread. Every function throws Error, with the file and the reason, where it can't write; the
/// file then ends with the last whole record.
///
/// Source: https://pytorch.org/docs/stable/tensorboard.html.
class SummaryWriter : private NonCopyable {
 public:
  using WallTime = std::optional<double>;

  /// Makes the folder if it is missing.
  explicit SummaryWriter(std::filesystem::path log_dir, const SummaryWriterOptions& options = {});
  ~SummaryWriter();

  /// As float32. Values that are not finite are shown as such.
  void add_scalar(const std::string& tag, double scalar_value, std::int64_t global_step = 0,
                  WallTime walltime = {});
  /// Curves in one diagram, main_tag, by their names. Each becomes a run of its own, in the folder
  /// main_tag_NAME.
  void add_scalars(const std::string& main_tag,
                   const std::map<std::string, double>& tag_scalar_dict,
                   std::int64_t global_step = 0, WallTime walltime = {});
  /// TensorBoard reads the text as Markdown.
  void add_text(const std::string& tag, const std::string& text_string,
                std::int64_t global_step = 0, WallTime walltime = {});
  /// Of all elements, in intervals that grow by a tenth each from 1e-12 on, to both sides of 0.
  /// ValueError for a tensor without elements, or with ones that are not finite.
  void add_histogram(const std::string& tag, const at::Tensor& values, std::int64_t global_step = 0,
                     WallTime walltime = {});
  /// A picture (channels, height, width) or (height, width), with 1 or 3 channels: of bytes, or of
  /// floating-point values from 0 to 1, beyond which they are cut. ValueError for others.
  void add_image(const std::string& tag, const at::Tensor& img_tensor, std::int64_t global_step = 0,
                 WallTime walltime = {});
  /// A line of TensorBoard's table of runs: with what values the run was started, and what it came
  /// to. The figures are scalars, too.
  void add_hparams(const std::map<std::string, HparamValue>& hparam_dict,
                   const std::map<std::string, double>& metric_dict, std::int64_t global_step = 0,
                   WallTime walltime = {});

  /// Waits until all is on the disk.
  void flush();
  /// Ends the files. What is added later goes to new ones.
  void close();
  /// "NAME BYTES" of the folder's own file; "" without one.
  [[nodiscard]] std::string place() const;

 private:
  std::unique_ptr<telemetry::EventFiles> files_;
};

}  // namespace lockstep
