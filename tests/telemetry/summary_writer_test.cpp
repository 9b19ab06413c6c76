#include "framework/telemetry/summary_writer.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Functions.h>
#include <sys/resource.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/formats/image.h"
#include "tests/catch.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/event_records.h"
#include "tests/support/files.h"
#include "tests/support/message_of.h"

namespace fs = std::filesystem;

namespace lockstep {

using namespace testing;
namespace {

using Path = std::vector<std::uint64_t>;

// Paths of fields, by the numbers in TensorBoard's own event.proto, summary.proto and
// plugin_data.proto.
const Path kWallTime{1};
const Path kVersion{3};
const Path kSessionStatus{7, 1};
const Path kTag{5, 1, 1};
const Path kScalar{5, 1, 2};
const Path kPlugin{5, 1, 9, 1, 1};
const Path kContent{5, 1, 9, 1, 2};

// The records of a folder's only file, without its version.
std::vector<std::string> records_in(const fs::path& folder) {
  const std::vector<fs::path> files = event_files(folder);
  REQUIRE(files.size() == 1);
  std::vector<std::string> records = event_records(files.front());
  REQUIRE_FALSE(records.empty());
  CHECK(fields_at(records.front(), kVersion) == std::vector<std::string>{"brain.Event:2"});
  records.erase(records.begin());
  return records;
}

std::string only(const std::string& record, const Path& path) {
  const std::vector<std::string> fields = fields_at(record, path);
  REQUIRE(fields.size() == 1);
  return fields.front();
}

template <typename Number>
Number number(const std::string& record, const Path& path) {
  return number_in<Number>(only(record, path));
}

// Doubles that lie one behind the other.
std::vector<double> packed(const std::string& record, const Path& path) {
  const std::string bytes = only(record, path);
  std::vector<double> values;
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    values.push_back(number_in<double>(std::string_view(bytes).substr(at)));
  }
  return values;
}

// Values over many intervals, on both sides of 0 and at it.
at::Tensor spread_values() {
  return at::tensor({-3.0, -0.5, 0.0, 0.0, 1e-13, 0.25, 0.5, 0.5, 2.0, 1e21}, at::kDouble);
}

at::Tensor picture() {
  return at::arange(2 * 3 * 3, at::kByte).mul(13).view({3, 2, 3});
}

// One of each kind. tests/telemetry/read_events.py knows them, too.
void write_samples(const fs::path& folder) {
  SummaryWriter writer(folder);
  for (int step = 0; step < 5; ++step) writer.add_scalar("loss/train", 1.0 / (step + 1), step);
  writer.add_scalar("lr", 0.0, 3, 1e9);
  writer.add_scalar("loss/nan", std::nan(""), 1);
  writer.add_scalars("both", {{"a", 1.5}, {"b/c", -2.0}}, 7);
  writer.add_text("config", "model: {name: mlp}\n\xff", 2);
  writer.add_histogram("weights", spread_values(), 4);
  writer.add_image("wrong/0", picture(), 6);
  writer.add_image("wrong/1", at::full({2, 2}, 0.5), 6);
  writer.add_hparams({{"lr", 0.25}, {"layers", 3}, {"model", "mlp"}, {"nesterov", false}},
                     {{"accuracy", 0.75}}, 9);
}

TEST_CASE("a checksum is the standard's", "[telemetry]") {
  CHECK(crc32c("123456789") == 0xe3069283);
}

TEST_CASE("an event file begins with its version and has whole records", "[telemetry]") {
  const TemporaryFolder home;
  write_samples(home.path("run"));
  const std::vector<fs::path> files = event_files(home.path("run"));
  REQUIRE(files.size() == 1);
  CHECK(std::regex_match(files.front().filename().string(),
                         std::regex(R"(events\.out\.tfevents\.\d{10}\..+\.)" +
                                    std::to_string(getpid()) + R"(\.\d+)")));
  const std::vector<std::string> records = records_in(home.path("run"));
  CHECK(records.size() == 12);
  const double now = static_cast<double>(std::time(nullptr));
  CHECK(std::abs(number<double>(records[0], kWallTime) - now) < 600);
  std::string damaged = read_text(files.front());
  damaged[damaged.size() / 2] ^= 1;
  write_text(files.front(), damaged);
  CHECK_THROWS(event_records(files.front()));
}

TEST_CASE("scalars have tag, step and value, also of 0", "[telemetry]") {
  const TemporaryFolder home;
  write_samples(home.path());
  const std::vector<std::string> records = records_in(home.path());
  for (std::size_t step = 0; step < 5; ++step) {
    CHECK(only(records[step], kTag) == "loss/train");
    CHECK(step_of(records[step]) == static_cast<std::int64_t>(step));
    CHECK(number<float>(records[step], kScalar) == 1.0F / static_cast<float>(step + 1));
  }
  CHECK(only(records[5], kTag) == "lr");
  CHECK(number<float>(records[5], kScalar) == 0.0F);
  CHECK(number<double>(records[5], kWallTime) == 1e9);
  CHECK(std::isnan(number<float>(records[6], kScalar)));
  for (const auto& [folder, value] :
       std::vector<std::pair<std::string, float>>{{"both_a", 1.5F}, {"both_b_c", -2.0F}}) {
    const std::vector<std::string> own = records_in(home.path() / folder);
    REQUIRE(own.size() == 1);
    CHECK(only(own[0], kTag) == "both");
    CHECK(number<float>(own[0], kScalar) == value);
    CHECK(step_of(own[0]) == 7);
  }
}

TEST_CASE("a text is a tensor for TensorBoard's texts, in UTF-8", "[telemetry]") {
  const TemporaryFolder home;
  write_samples(home.path());
  const std::string text = records_in(home.path())[7];
  CHECK(only(text, kTag) == "config/text_summary");
  CHECK(only(text, kPlugin) == "text");
  CHECK(number<std::int64_t>(text, {5, 1, 8, 1}) == 7);        // a tensor of texts
  CHECK(number<std::int64_t>(text, {5, 1, 8, 2, 2, 1}) == 1);  // of one
  CHECK(only(text, {5, 1, 8, 8}) == "model: {name: mlp}\n\xef\xbf\xbd");
}

// Whether each of a record's intervals has as many values as lie in it.
void check_counts(const std::string& record, const at::Tensor& values) {
  const std::vector<double> limits = packed(record, {5, 1, 5, 6});
  const std::vector<double> counts = packed(record, {5, 1, 5, 7});
  REQUIRE(limits.size() == counts.size());
  CHECK(counts.front() == values.lt(limits.front()).sum().item<double>());
  for (std::size_t i = 1; i < limits.size(); ++i) {
    INFO("from " << limits[i - 1] << " to " << limits[i]);
    CHECK(counts[i] ==
          values.ge(limits[i - 1]).logical_and(values.lt(limits[i])).sum().item<double>());
  }
}

TEST_CASE("a histogram counts each value in its interval", "[telemetry]") {
  const TemporaryFolder home;
  write_samples(home.path());
  const std::string record = records_in(home.path())[8];
  CHECK(number<double>(record, {5, 1, 5, 1}) == -3.0);
  CHECK(number<double>(record, {5, 1, 5, 2}) == 1e21);
  CHECK(number<double>(record, {5, 1, 5, 3}) == 10);
  CHECK(number<double>(record, {5, 1, 5, 4}) == 1e21);
  CHECK(number<double>(record, {5, 1, 5, 5}) == 1e42);
  CHECK(packed(record, {5, 1, 5, 6}).back() == std::numeric_limits<double>::max());
  check_counts(record, spread_values());

  // The ends themselves, what is next to them, and what lies between.
  const std::vector<double> limits = packed(record, {5, 1, 5, 6});
  const at::Tensor ends = at::tensor(limits, at::kDouble).slice(0, 1, -1);
  const at::Tensor near = at::cat({ends, ends.mul(1 - 1e-15), ends.mul(1 + 1e-15), ends.mul(1.03)});
  const at::Tensor values =
      at::cat({near, near.neg(), at::tensor({0.0, -0.0, 5e-324, -5e-324}, at::kDouble)});
  SummaryWriter(home.path() / "near").add_histogram("near", values);
  check_counts(records_in(home.path() / "near")[0], values);
}

TEST_CASE("a histogram has room for the largest and the smallest double", "[telemetry]") {
  const TemporaryFolder home;
  constexpr double kMost = std::numeric_limits<double>::max();
  SummaryWriter(home.path()).add_histogram("h", at::tensor({kMost, 1e300, -kMost}, at::kDouble));
  const std::string record = records_in(home.path())[0];
  CHECK(packed(record, {5, 1, 5, 6}).back() == kMost);
  const std::vector<double> counts = packed(record, {5, 1, 5, 7});
  CHECK(counts.front() == 1);
  CHECK(counts.back() == 2);
}

TEST_CASE("a picture is a PNG file of its bytes", "[telemetry]") {
  const TemporaryFolder home;
  write_samples(home.path());
  const std::vector<std::string> records = records_in(home.path());
  const auto decoded = [&](const std::string& record) {
    const std::string png = only(record, {5, 1, 4, 4});
    const formats::Image image = formats::decode_png(
        {reinterpret_cast<const std::uint8_t*>(png.data()), png.size()}, "picture");
    CHECK(number<std::int64_t>(record, {5, 1, 4, 1}) == image.height);
    CHECK(number<std::int64_t>(record, {5, 1, 4, 2}) == image.width);
    CHECK(number<std::int64_t>(record, {5, 1, 4, 3}) == image.channels);
    return image;
  };
  const at::Tensor rows = picture().permute({1, 2, 0}).contiguous();
  const auto* const bytes = rows.data_ptr<std::uint8_t>();
  CHECK(decoded(records[9]) == formats::Image{2, 3, 3, {bytes, bytes + rows.numel()}});
  CHECK(decoded(records[10]) == formats::Image{2, 2, 1, {127, 127, 127, 127}});
}

TEST_CASE("hyperparameters have their types, and figures are scalars", "[telemetry]") {
  const TemporaryFolder home;
  write_samples(home.path());
  const std::string record = records_in(home.path())[11];
  CHECK(fields_at(record, kTag) == std::vector<std::string>{"_hparams_/session_start_info",
                                                            "_hparams_/session_end_info",
                                                            "accuracy"});
  CHECK(fields_at(record, kPlugin) == std::vector<std::string>{"hparams", "hparams"});
  CHECK(number<float>(record, kScalar) == 0.75F);
  const std::string start = fields_at(record, kContent)[0];
  CHECK(fields_at(start, {3, 1, 1}) ==
        std::vector<std::string>{"layers", "lr", "model", "nesterov"});
  std::vector<double> numbers;
  for (const std::string& value : fields_at(start, {3, 1, 2, 2})) {
    numbers.push_back(number_in<double>(value));
  }
  CHECK(numbers == std::vector<double>{3.0, 0.25});
  CHECK(only(start, {3, 1, 2, 3}) == "mlp");
  CHECK(number<std::int64_t>(start, {3, 1, 2, 4}) == 0);
  CHECK(number<std::int64_t>(fields_at(record, kContent)[1], {4, 1}) == 1);  // it has succeeded
}

TEST_CASE("a writer begins a file that is read after those there, and forgets their later steps",
          "[telemetry]") {
  const TemporaryFolder home;
  // As a host whose clock is ahead has left it.
  const std::string ahead = home.path("events.out.tfevents.4000000000.other.1.0");
  write_text(ahead, "");
  const std::string no_time = home.path("events.out.tfevents.9223372036854775807.other");
  write_text(no_time, "");
  SummaryWriter writer(home.path(), {.purge_step = 8});
  writer.add_scalar("loss", 1, 8);
  writer.close();
  writer.add_scalar("loss", 2, 9);
  const std::vector<fs::path> files = event_files(home.path());
  REQUIRE(files.size() == 4);
  CHECK(files[0] == ahead);
  CHECK(files[3] == no_time);
  CHECK(files[1].filename().string().starts_with("events.out.tfevents.4000000001."));
  const std::vector<std::string> first = event_records(files[1]);
  REQUIRE(first.size() == 4);
  for (const std::string& start : {first[1], first[2]}) {
    CHECK(number<std::int64_t>(start, kSessionStatus) == 1);
    CHECK(step_of(start) == 8);
  }
  CHECK(step_of(first[3]) == 8);
  // Its own are not forgotten.
  const std::vector<std::string> second = event_records(files[2]);
  REQUIRE(second.size() == 2);
  CHECK(fields_at(second[1], kSessionStatus).empty());
  CHECK(step_of(second[1]) == 9);
}

TEST_CASE("what is added is in the file at once, whole or not at all", "[telemetry]") {
  const TemporaryFolder home;
  SummaryWriter writer(home.path());
  writer.add_scalar("a", 1);
  CHECK(records_in(home.path()).size() == 1);

  // As on a full disk.
  struct rlimit before {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  struct rlimit little = before;
  little.rlim_cur = 200;
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &little) == 0);
  const std::string message =
      message_of<Error>([&] { writer.add_text("b", std::string(1000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK_THAT(message,
             ContainsSubstring("can't be written: File too large; files may have no more"));
  CHECK_THAT(message, ContainsSubstring(home.path("events.out.tfevents.")));

  writer.add_scalar("c", 3);
  writer.flush();
  const std::vector<std::string> records = records_in(home.path());
  REQUIRE(records.size() == 2);
  CHECK(only(records[1], kTag) == "c");

  fs::remove(event_files(home.path()).front());
  CHECK_THROWS_WITH(
      writer.add_scalar("d", 4),
      Catch::Matchers::StartsWith(home.path("events.out.tfevents.")) &&
          Catch::Matchers::EndsWith(" was removed, renamed or replaced while it was written"));
}

TEST_CASE("a writer that warns says once that its files can't be written", "[telemetry]") {
  const TemporaryFolder home;
  const CapturedStderr captured;
  write_text(home.path("file"), "");
  SummaryWriter unmade(home.path("file"), {.warns = true});
  unmade.add_scalar("a", 1);
  unmade.flush();
  CHECK(unmade.place().empty());
  SummaryWriter writer(home.path() / "run", {.warns = true});
  const fs::path file = event_files(home.path() / "run").front();
  CHECK(writer.place() == str(file.filename().string(), " ", fs::file_size(file)));
  fs::remove(file);
  for (int i = 0; i < 3; ++i) writer.add_scalar("a", 1);
  CHECK(std::ranges::count(captured.text(), '\n') == 2);
  CHECK_THAT(captured.text(),
             ContainsSubstring("file can't be made: ") &&
                 ContainsSubstring(file.string() + " was removed, renamed or replaced"));
}

TEST_CASE("threads may share a writer of events", "[telemetry]") {
  const TemporaryFolder home;
  SummaryWriter writer(home.path());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int step = 0; step < 100; ++step) {
        writer.add_scalar(std::to_string(i), step, step);
        writer.add_scalars("all", {{"a", 1}}, step);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(records_in(home.path()).size() == 400);
  CHECK(records_in(home.path() / "all_a").size() == 400);
}

TEST_CASE("what can't be shown, or written, is refused by name", "[telemetry]") {
  const TemporaryFolder home;
  SummaryWriter writer(home.path());
  const auto refused = [&](const at::Tensor& picture) {
    return message_of<ValueError>([&] { writer.add_image("p", picture); });
  };
  CHECK(refused(at::zeros({2, 4, 4})) ==
        "add_image: 'p' has the shape [2, 4, 4], but must be (1 or 3, height, width) or (height, "
        "width)");
  CHECK_THAT(refused(at::zeros({1, 0, 4})), ContainsSubstring("has the shape [1, 0, 4], but"));
  CHECK(refused(at::zeros({2, 2}, at::kLong)) ==
        "add_image: 'p' has elements of Long, but must have bytes, or floating-point values from 0 "
        "to 1");
  CHECK(message_of<ValueError>([&] { writer.add_histogram("h", at::zeros({0})); }) ==
        "add_histogram: 'h' has no elements");
  CHECK(message_of<ValueError>([&] { writer.add_histogram("h", at::full({2}, std::nan(""))); }) ==
        "add_histogram: 'h' has elements that are not finite");
  CHECK(records_in(home.path()).empty());
  write_text(home.path("file"), "");
  CHECK_THAT(message_of<Error>([&] { SummaryWriter(home.path("file")); }),
             ContainsSubstring("file can't be made: "));
}

// For tests/telemetry/read_events.py, which says where to.
TEST_CASE("samples of all kinds of events", "[.]") {
  const char* const folder = std::getenv("LOCKSTEP_EVENTS");
  REQUIRE(folder != nullptr);
  write_samples(fs::path(folder) / "run");
  for (const std::int64_t first : {0, 3}) {  // as if it had been killed after step 4
    SummaryWriter writer(fs::path(folder) / "resumed",
                         first == 0 ? SummaryWriterOptions{} : SummaryWriterOptions{first});
    for (std::int64_t step = first; step < 5; ++step) {
      writer.add_scalar("loss", static_cast<double>(first * 10 + step), step);
    }
  }
}

}  // namespace
}  // namespace lockstep
