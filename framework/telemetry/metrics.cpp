#include "framework/telemetry/metrics.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "framework/base/limits.h"
#include "framework/base/logging.h"
#include "framework/base/number_text.h"
#include "framework/base/text.h"
#include "framework/formats/data_file.h"
#include "framework/formats/json_text.h"
#include "framework/telemetry/run_folder.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// The shortest text that reads back as `value`. nlohmann's own is longer for one double in 200.
std::string number_text(double value) {
  return std::isfinite(value) ? float_text(value) : "null";
}

// Appends `json` to `text`: on one line, or with objects spread over lines that start with `indent`
// and two spaces a level.
void append(std::string& text, const Json& json, const std::optional<std::string>& indent) {
  if (json.is_number_float()) {
    text += number_text(json.get<double>());
  } else if (json.is_array()) {
    const char* separator = "[";
    for (const Json& value : json) {
      text += separator;
      append(text, value, std::nullopt);
      separator = indent ? ", " : ",";
    }
    text += json.empty() ? "[]" : "]";
  } else if (json.is_object() && !json.empty()) {
    const std::string newline = indent ? "\n" + *indent : "";
    char separator = '{';
    for (const auto& [name, value] : json.items()) {
      text += separator;
      text += newline;
      if (indent) text += "  ";
      append(text, name, std::nullopt);
      text += indent ? ": " : ":";
      append(text, value, indent ? std::optional(*indent + "  ") : std::nullopt);
      separator = ',';
    }
    text += newline;
    text += '}';
  } else {
    // Text that is not UTF-8 (a folder's name, say) is no reason to lose a line.
    text += json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

Json scalar_json(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kBool) return tensor.item<bool>();
  if (!tensor.is_floating_point()) return tensor.item<std::int64_t>();
  if (tensor.scalar_type() == at::kDouble) return tensor.item<double>();
  return shortest_decimal(tensor.item<float>());
}

Json nested_json(const at::Tensor& tensor) {
  if (tensor.dim() == 0) return scalar_json(tensor);
  Json list = Json::array();
  for (std::int64_t i = 0; i < tensor.size(0); ++i) {
    list.push_back(nested_json(tensor.select(0, i)));
  }
  return list;
}

Json parameters_json(const std::map<std::string, at::Tensor>& parameters) {
  Json json = Json::object();
  for (const auto& [name, tensor] : parameters) {
    const at::Tensor values = tensor.detach().cpu();
    json[name] = values.numel() == 1 ? scalar_json(values) : nested_json(values);
  }
  return json;
}

Json memory_json(const HostMemoryUse& use) {
  return {{"parameters", use.largest.parameters},
          {"gradients", use.largest.gradients},
          {"optimizer_state", use.largest.optimizer_state},
          {"communication", use.largest.communication},
          {"checkpoint", use.largest.checkpoint},
          {"initialization", use.largest.initialization},
          {"host", use.host.total()}};
}

Json memory_json(const MemoryReport& report) {
  Json json{{"predicted", memory_json(report.predicted)},
            {"measured", memory_json(report.measured)},
            {"resident", report.resident},
            {"rest", report.rest}};
  if (report.activations > 0) json["activations"] = report.activations;
  for (const auto& [host, resident] : report.replicas) {
    json["replicas"].push_back({{"host", host}, {"resident", resident}});
  }
  return json;
}

Json best_json(const BestStep& best) {
  Json json{{"step", best.step}, {"validation", best.validation}};
  if (!best.checkpoint.empty()) json["checkpoint"] = best.checkpoint;
  return json;
}

Json engine_json(const EngineRecord& engine) {
  Json json{{"name", engine.name}};
  if (!engine.job.empty()) json["job"] = engine.job;
  if (!engine.step.empty()) json["step"] = engine.step;
  if (engine.restarts > 0) json["restarts"] = engine.restarts;
  return json;
}

// How a run runs, and on what.
void add_job(Json& json, const RunResult& result) {
  json["threads_per_replica"] = result.threads_per_replica;
  json["workers"] = result.workers;
  if (result.hosts > 1) json["hosts"] = result.hosts;
  if (!result.replica_hosts.empty()) json["replica_hosts"] = result.replica_hosts;
  json["launch"] = result.launch;
  json["backend"] = result.backend;
  json["blas"] = result.blas;
  json["libtorch"] = result.libtorch;
  if (!result.lockstep.empty()) json["lockstep"] = result.lockstep;
  if (!result.cpu.empty()) json["cpu"] = result.cpu;
  if (result.cores > 0) json["cores"] = result.cores;
  if (!result.command.empty()) json["command"] = result.command;
  if (result.restarts > 0) json["restarts"] = result.restarts;
  if (result.engine) json["engine"] = engine_json(*result.engine);
  if (!result.changes.empty()) json["changes"] = result.changes;
  if (!result.waived.empty()) json["waived"] = result.waived;
}

// Cuts off what a full disk has left of a last line: the next would become one with it.
void cut_unfinished_line(const std::filesystem::path& path, const File& file) {
  std::string text(std::min<std::uint64_t>(file.size(), formats::kLongestLine), '\0');
  const std::uint64_t begin = file.size() - text.size();
  text.resize(file.read_some(begin, std::as_writable_bytes(std::span(text))));
  if (text.empty() || text.back() == '\n') return;
  const std::uint64_t kept = begin + text.rfind('\n') + 1;
  require<Error>(kept == 0 || kept > begin, path.string(), " ends in a line of more than ",
                 formats::kLongestLine, " bytes");
  require_done<Error>(::ftruncate(file.descriptor(), static_cast<off_t>(kept)) == 0, path.string(),
                      " can't be cut");
}

// A line of a file that only grows.
void append_line(const std::filesystem::path& path, const Json& json) {
  std::string text;
  append(text, json, std::nullopt);
  const File file(path, O_RDWR | O_CREAT | O_APPEND);
  cut_unfinished_line(path, file);
  file.write(text + "\n");
}

Json event_json(const char* event) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return {{"time", now.count()}, {"event", event}};
}

// Whether a line of metrics.jsonl is whole, and of a step up to `step`.
bool is_up_to(std::string_view text, std::int64_t step) {
  const auto line = formats::parse_json<nlohmann::json>(text);
  const auto number = line.is_object() ? line.find("step") : line.end();
  return number != line.end() && number->is_number_integer() && *number <= step;
}

// The bytes of the file's first lines, as far as they are of steps up to `step`.
std::uint64_t bytes_up_to(const std::filesystem::path& path, std::int64_t step) {
  std::uint64_t kept = 0;
  formats::for_each_line(path, [&](std::string_view line, bool has_end) {
    const bool is_kept = has_end && is_up_to(line, step);
    if (is_kept) kept += line.size() + 1;
    return is_kept;
  });
  return kept;
}

}  // namespace

double shortest_decimal(float value) {
  if (!std::isfinite(value)) return value;
  // Scientific, because plain notation spells out all digits of a large integer.
  return parse_number<double>(shortest_text(value, std::chars_format::scientific)).value();
}

MetricsWriter::MetricsWriter(const std::filesystem::path& folder)
    : folder_(folder), file_(folder / "metrics.jsonl", O_WRONLY | O_CREAT | O_APPEND) {}

std::string metrics_line(const std::vector<std::pair<std::string, MetricValue>>& values) {
  Json line = Json::object();
  for (const auto& [name, value] : values) {
    require(!line.contains(name), "metrics: '", name, "' is given twice");
    line[name] = std::visit([](const auto& held) { return Json(held); }, value);
  }
  std::string text;
  append(text, line, std::nullopt);
  return text + "\n";
}

void MetricsWriter::write_line(const std::string& line) {
  file_.write(line);
  check_place();
}

void MetricsWriter::check_place() const {
  if (file_.is_in_place()) return;
  throw Error(str("the output folder ", folder_.string(),
                  " or its metrics.jsonl was removed, renamed or replaced during the run"));
}

void cut_metrics(const std::filesystem::path& folder, std::int64_t step,
                 const std::optional<std::string>& lines) {
  const std::filesystem::path path = folder / "metrics.jsonl";
  std::error_code missing;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, missing))) return;
  const File file(path, O_RDWR | O_APPEND);
  const std::uint64_t kept = bytes_up_to(path, lines ? step - 1 : step);
  require_done<Error>(::ftruncate(file.descriptor(), static_cast<off_t>(kept)) == 0, path.string(),
                      " can't be cut");
  if (lines) file.write(*lines);
}

std::string result_json(const RunResult& result) {
  Json json;
  json["steps"] = result.steps;
  if (result.skipped_steps > 0) json["skipped_steps"] = result.skipped_steps;
  json["replicas"] = result.replicas;
  json["zero_stage"] = result.zero_stage;
  json["loss"] = result.loss;
  json["eval"] = result.eval;
  json["test"] = result.eval;
  if (!result.validation.empty()) json["validation"] = result.validation;
  if (result.best) json["best"] = best_json(*result.best);
  if (result.best && !result.best->test.empty()) {
    Json& test = json["test_best"] = result.best->test;
    test["step"] = result.best->step;
  }
  if (!result.weights.empty()) json["weights"] = result.weights;
  if (!result.parameters.empty()) json["parameters"] = parameters_json(result.parameters);
  json["parameters_sha256"] = result.parameters_sha256;
  if (!result.buffers_sha256.empty()) json["buffers_sha256"] = result.buffers_sha256;
  add_job(json, result);
  if (result.memory) json["memory"] = memory_json(*result.memory);
  std::string text;
  append(text, json, "");
  return text + "\n";
}

void write_result(const std::filesystem::path& folder, const RunResult& result) {
  const auto tell = [](const std::string& field, double value) {
    if (std::isfinite(value)) return;
    log_warning(str(field, " is ", value, ": result.json has null there"));
  };
  tell("loss", result.loss);
  for (const auto& [name, value] : result.eval) tell("eval." + name, value);
  for (const auto& [name, value] : result.validation) tell("validation." + name, value);
  if (result.best) {
    for (const auto& [name, value] : result.best->test) tell("test_best." + name, value);
  }
  write_file_atomically(folder / "result.json", result_json(result));
}

void note_start(const std::filesystem::path& folder, const RunResult& job) {
  Json event = event_json("started");
  event["steps"] = job.steps;
  event["replicas"] = job.replicas;
  event["zero_stage"] = job.zero_stage;
  add_job(event, job);
  append_line(folder / kEventsFile, event);
}

void note_stall(const std::filesystem::path& folder, const std::string& warning) {
  Json event = event_json("stalled");
  event["text"] = warning;
  append_line(folder / kEventsFile, event);
}

}  // namespace lockstep
