#include "framework/telemetry/summary_writer.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <nlohmann/json.hpp>

#include "events.pb.h"
#include "framework/base/text.h"
#include "framework/formats/image.h"
#include "framework/telemetry/event_file.h"
#include "framework/telemetry/tensor_image.h"

namespace lockstep {
namespace {

namespace events = telemetry::events;

// What a reader takes: it gives up a file with a text that is no UTF-8.
std::string mended(const std::string& text) {
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
  return nlohmann::json::parse(nlohmann::json(text).dump(-1, ' ', false, kReplace));
}

events::Event event_at(std::int64_t step, SummaryWriter::WallTime walltime) {
  events::Event event;
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  event.set_wall_time(walltime.value_or(now.count()));
  event.set_step(step);
  return event;
}

std::vector<std::string> first_records(std::optional<std::int64_t> purge_step) {
  events::Event version = event_at(purge_step.value_or(0), {});
  version.set_file_version("brain.Event:2");
  std::vector<std::string> records{version.SerializeAsString()};
  if (purge_step) {
    events::Event start = event_at(*purge_step, {});
    start.mutable_session_log()->set_status(events::SessionLog::START);
    // TensorBoard takes the first that it sees in a run for the run's own start.
    records.insert(records.end(), 2, start.SerializeAsString());
  }
  return records;
}

events::Summary::Value& add_value(events::Event& event, const std::string& tag) {
  events::Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag(mended(tag));
  return value;
}

// One of `plugin`, which `content` is for.
events::Summary::Value& add_value(events::Event& event, const std::string& tag,
                                  const std::string& plugin, const std::string& content = "") {
  events::Summary::Value& value = add_value(event, tag);
  value.mutable_metadata()->mutable_plugin_data()->set_plugin_name(plugin);
  value.mutable_metadata()->mutable_plugin_data()->set_content(content);
  return value;
}

// The upper ends of a histogram's intervals, as TensorFlow has them.
std::vector<double> make_limits() {
  std::vector<double> limits{0};
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) limits.push_back(limit);
  std::vector<double> all;
  for (auto limit = limits.rbegin(); limit + 1 != limits.rend(); ++limit) all.push_back(-*limit);
  all.insert(all.end(), limits.begin(), limits.end());
  all.push_back(std::numeric_limits<double>::max());
  return all;
}

// The intervals with the upper ends `limits`, found by a value's first 16 bits (its sign, exponent
// and four of its fraction): a search among all ends, for each value, would hold up the training.
class Intervals {
 public:
  explicit Intervals(std::vector<double> limits) : limits_(std::move(limits)), first_(1 << 16) {
    for (std::uint64_t begin = 0; begin < first_.size(); ++begin) {
      const bool is_negative = begin >= first_.size() / 2;
      const std::uint64_t rest = is_negative ? (std::uint64_t{1} << 48) - 1 : 0;
      const auto smallest = std::bit_cast<double>((begin << 48) + rest);
      first_[begin] = std::ranges::upper_bound(limits_, smallest) - limits_.begin();
    }
  }
  // That of a finite value. The largest double, which no end is beyond, is in the last.
  [[nodiscard]] std::size_t of(double value) const {
    auto place = static_cast<std::size_t>(first_[std::bit_cast<std::uint64_t>(value) >> 48]);
    while (place < limits_.size() && limits_[place] <= value) ++place;
    return std::min(place, limits_.size() - 1);
  }
  [[nodiscard]] const std::vector<double>& limits() const { return limits_; }

 private:
  std::vector<double> limits_;
  std::vector<std::ptrdiff_t> first_;  // the interval of the smallest value that begins so
};

// `values` are contiguous doubles.
void set_histogram(events::Histogram& histogram, const at::Tensor& values) {
  static const Intervals kIntervals(make_limits());
  histogram.set_min(values.min().item<double>());
  histogram.set_max(values.max().item<double>());
  histogram.set_num(static_cast<double>(values.numel()));
  histogram.set_sum(values.sum().item<double>());
  histogram.set_sum_squares(values.dot(values).item<double>());
  std::vector<double> counts(kIntervals.limits().size());
  for (const double value :
       std::span(values.data_ptr<double>(), static_cast<std::size_t>(values.numel()))) {
    ++counts[kIntervals.of(value)];
  }
  const std::size_t first = kIntervals.of(histogram.min()), last = kIntervals.of(histogram.max());
  // From the empty one on whose upper end is the first value's lower one.
  for (std::size_t i = std::max<std::size_t>(first, 1) - 1; i <= last; ++i) {
    histogram.add_bucket_limit(kIntervals.limits()[i]);
    histogram.add_bucket(counts[i]);
  }
}

void set_value(events::HParams::Value& value, const HparamValue& held) {
  std::visit(
      [&]<typename T>(const T& plain) {
        if constexpr (std::is_same_v<T, bool>) {
          value.set_bool_value(plain);
        } else if constexpr (std::is_same_v<T, std::string>) {
          value.set_string_value(mended(plain));
        } else {
          value.set_number_value(static_cast<double>(plain));
        }
      },
      held);
}

}  // namespace

SummaryWriter::SummaryWriter(std::filesystem::path log_dir, const SummaryWriterOptions& options)
    : files_(std::make_unique<telemetry::EventFiles>(
          std::move(log_dir),
          [purge_step = options.purge_step](bool is_first) {
            return first_records(is_first ? purge_step : std::nullopt);
          },
          options.warns)) {}

SummaryWriter::~SummaryWriter() = default;

void SummaryWriter::add_scalar(const std::string& tag, double scalar_value,
                               std::int64_t global_step, WallTime walltime) {
  events::Event event = event_at(global_step, walltime);
  add_value(event, tag).set_simple_value(static_cast<float>(scalar_value));
  files_->write("", event.SerializeAsString());
}

void SummaryWriter::add_scalars(const std::string& main_tag,
                                const std::map<std::string, double>& tag_scalar_dict,
                                std::int64_t global_step, WallTime walltime) {
  for (const auto& [tag, value] : tag_scalar_dict) {
    events::Event event = event_at(global_step, walltime);
    add_value(event, main_tag).set_simple_value(static_cast<float>(value));
    std::string folder = main_tag + "_" + tag;
    std::ranges::replace(folder, '/', '_');
    files_->write(folder, event.SerializeAsString());
  }
}

void SummaryWriter::add_text(const std::string& tag, const std::string& text_string,
                             std::int64_t global_step, WallTime walltime) {
  events::Event event = event_at(global_step, walltime);
  events::Tensor& tensor = *add_value(event, tag + "/text_summary", "text").mutable_tensor();
  tensor.set_dtype(events::Tensor::DT_STRING);
  tensor.mutable_tensor_shape()->add_dim()->set_size(1);
  tensor.add_string_val(mended(text_string));
  files_->write("", event.SerializeAsString());
}

void SummaryWriter::add_histogram(const std::string& tag, const at::Tensor& values,
                                  std::int64_t global_step, WallTime walltime) {
  const at::Tensor all = values.detach().to(at::kDouble).flatten().contiguous();
  require(all.numel() > 0 && all.isfinite().all().item<bool>(), "add_histogram: '", tag, "' has ",
          all.numel() > 0 ? "elements that are not finite" : "no elements");
  events::Event event = event_at(global_step, walltime);
  set_histogram(*add_value(event, tag).mutable_histo(), all);
  files_->write("", event.SerializeAsString());
}

void SummaryWriter::add_image(const std::string& tag, const at::Tensor& img_tensor,
                              std::int64_t global_step, WallTime walltime) {
  const formats::Image picture =
      telemetry::image_of(str("add_image: '", tag, "'"), img_tensor.detach());
  events::Event event = event_at(global_step, walltime);
  events::Summary::Image& image = *add_value(event, tag).mutable_image();
  image.set_height(static_cast<std::int32_t>(picture.height));
  image.set_width(static_cast<std::int32_t>(picture.width));
  image.set_colorspace(static_cast<std::int32_t>(picture.channels));
  image.set_encoded_image_string(formats::encode_png(picture));
  files_->write("", event.SerializeAsString());
}

void SummaryWriter::add_hparams(const std::map<std::string, HparamValue>& hparam_dict,
                                const std::map<std::string, double>& metric_dict,
                                std::int64_t global_step, WallTime walltime) {
  events::Event event = event_at(global_step, walltime);
  events::HParams begin;
  begin.mutable_session_start_info()->set_start_time_secs(event.wall_time());
  for (const auto& [name, value] : hparam_dict) {
    events::HParams::Entry& entry = *begin.mutable_session_start_info()->add_hparams();
    entry.set_key(mended(name));
    set_value(*entry.mutable_value(), value);
  }
  events::HParams end;
  end.mutable_session_end_info()->set_status(events::HParams::SessionEnd::STATUS_SUCCESS);
  end.mutable_session_end_info()->set_end_time_secs(event.wall_time());
  const std::string plugin = "hparams";
  add_value(event, "_hparams_/session_start_info", plugin, begin.SerializeAsString());
  add_value(event, "_hparams_/session_end_info", plugin, end.SerializeAsString());
  for (const auto& [name, value] : metric_dict) {
    add_value(event, name).set_simple_value(static_cast<float>(value));
  }
  files_->write("", event.SerializeAsString());
}

void SummaryWriter::flush() {
  files_->sync();
}

void SummaryWriter::close() {
  files_->close();
}

std::string SummaryWriter::place() const {
  return files_->place();
}

}  // namespace lockstep
