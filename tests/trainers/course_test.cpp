#include "trainers/course.h"

#include <memory>

#include "tests/catch.h"
#include "tests/trainers/parsed_config.h"
#include "trainers/config_options.h"

using namespace lockstep;
using testing::kNames;
using testing::parse;

namespace {

class Samples final : public Dataset {
 public:
  explicit Samples(std::int64_t size) : size_(size) {}
  std::int64_t size() const override { return size_; }
  std::int64_t features() const override { return 1; }
  std::int64_t outputs() const override { return 1; }
  Task task() const override { return Task::regression; }

 private:
  Batch gather(std::span<const std::int64_t> /*indices*/) const override { return {}; }

  std::int64_t size_;
};

Course course(const std::string& trainer, std::int64_t batch, std::int64_t replicas,
              const ResumePoint* point = nullptr) {
  const Config config = parse("model: {name: linear}\ndata: {name: pmean_example, batch_size: " +
                              std::to_string(batch) + "}\ntrainer: " + trainer);
  const DataSets data{std::make_shared<Samples>(100), nullptr};
  const Sampler sampler(sampler_options(config, data, replicas));
  return course_of(config, data, replicas, sampler, point);
}

// After so many samples of a run whose global batch was `batch`.
ResumePoint point(std::int64_t step, std::int64_t samples, std::int64_t batch, double place) {
  ResumePoint made;
  made.info.step = step;
  made.info.counts = {{kSamplesCount, samples}, {kScheduleBatchCount, batch}};
  made.info.figures = {{kSchedulePlaceFigure, place}};
  return made;
}

}  // namespace

TEST_CASE("a run's course leads from its first step to its last, and so does its schedule's") {
  for (const std::string length : {"{epochs: 3}", "{steps: 39}"}) {  // 13 steps an epoch
    INFO(length);
    const Course whole = course(length, 4, 2);
    CHECK(whole.total_steps == 39);
    CHECK(whole.schedule_steps == 39);
    CHECK(whole.schedule_batch == 8);
    CHECK(whole.place_of(38) == 38);
    // 15 steps of 8, of which the 13th had 4: 116 samples.
    const ResumePoint after = point(15, 116, 8, 15);
    const Course on = course(length, 4, 2, &after);
    CHECK(on.first_sample == 116);
    CHECK(on.total_steps == 39);
    CHECK(on.schedule_advance == 1);
    CHECK(on.place_of(20) == 20);
  }
}

TEST_CASE("with another global batch a run ends after the same samples, its schedule at its end") {
  const ResumePoint after = point(15, 116, 8, 15);
  const Course epochs = course("{epochs: 3}", 5, 4, &after);  // 84 samples of this epoch are left
  CHECK(epochs.total_steps == 15 + 5 + 5);
  CHECK(epochs.schedule_steps == 39);
  CHECK(epochs.place_of(15) == 15);
  CHECK(epochs.place_of(25) == Approx(39));
  const Course steps = course("{steps: 39}", 5, 4, &after);  // 24 of 8 samples are left
  CHECK(steps.total_steps == 15 + 10);
  CHECK(steps.place_of(25) == Approx(39));
  // It goes on once more, with the first batch.
  const ResumePoint later = point(20, 216, 8, epochs.place_of(20));
  const Course again = course("{epochs: 3}", 8, 1, &later);
  CHECK(again.total_steps == 20 + 11);
  CHECK(again.schedule_steps == 39);
  CHECK(again.place_of(31) == Approx(39));
}

TEST_CASE("a run that has had its samples has no steps left, one that is longer now has more") {
  const ResumePoint end = point(39, 300, 8, 39);
  CHECK(course("{epochs: 3}", 4, 2, &end).total_steps == 39);
  CHECK(course("{epochs: 2}", 4, 2, &end).total_steps == 39);
  CHECK(course("{steps: 20}", 4, 2, &end).total_steps == 39);
  CHECK(course("{epochs: 4}", 4, 2, &end).total_steps == 52);
  CHECK(course("{steps: 50}", 4, 2, &end).total_steps == 50);
}
