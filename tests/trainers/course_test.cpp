#include "trainers/run/course.h"

#include "tests/catch.h"
#include "tests/data/made_set.h"
#include "tests/trainers/parsed_config.h"

using namespace lockstep;
using testing::kNames;
using testing::parse;

namespace {

Course course(const std::string& trainer, std::int64_t batch, std::int64_t replicas,
              const ResumePoint* point = nullptr, const std::string& of_data = "") {
  Config config = parse("model: {name: linear}\ndata: {name: pmean_example, batch_size: " +
                        std::to_string(batch) + of_data + "}\ntrainer: " + trainer);
  const DataSets data{.train = testing::made_set({.size = 100})};
  config.launch.replicas = replicas;
  return course_of(config, data, point);
}

// What a run on `course` saves after `step`, when it has had so many samples.
ResumePoint point(const Course& on, std::int64_t step, std::int64_t samples) {
  ResumePoint made;
  made.info.step = step;
  made.info.counts = {{kSamplesCount, samples}};
  add_course(on, made.info);
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
    const ResumePoint after = point(whole, 15, 116);
    const Course on = course(length, 4, 2, &after);
    CHECK(on.first_step == 15);
    CHECK(on.first_sample == 116);
    CHECK(on.total_steps == 39);
    CHECK(on.place_of(20) == 20);
  }
}

TEST_CASE("with another global batch a run ends after the same samples, its schedule at its end") {
  // 84 samples of the second epoch are left, and the third.
  const ResumePoint after = point(course("{epochs: 3}", 4, 2), 15, 116);
  const Course epochs = course("{epochs: 3}", 5, 4, &after);
  CHECK(epochs.total_steps == 15 + 5 + 5);
  CHECK(epochs.schedule_steps == 39);
  CHECK(epochs.place_of(15) == 15);
  CHECK(epochs.place_of(25) == Approx(39));
  // 24 steps of 8 samples are left.
  const ResumePoint in_steps = point(course("{steps: 39}", 4, 2), 15, 116);
  const Course steps = course("{steps: 39}", 5, 4, &in_steps);
  CHECK(steps.total_steps == 15 + 10);
  CHECK(steps.place_of(25) == Approx(39));
  // It goes on once more, with the first batch.
  const ResumePoint later = point(epochs, 20, 216);
  const Course again = course("{epochs: 3}", 8, 1, &later);
  CHECK(again.total_steps == 20 + 11);
  CHECK(again.schedule_steps == 39);
  CHECK(again.place_of(20) == epochs.place_of(20));
  CHECK(again.place_of(31) == Approx(39));
}

TEST_CASE("a run says where another global batch changes how many steps trainer.steps means") {
  const auto text = [](const std::string& length, std::int64_t batch, std::int64_t replicas) {
    const ResumePoint after = point(course(length, 4, 2), 15, 116);
    const Config config =
        parse("model: {name: linear}\ndata: {name: pmean_example}\ntrainer: " + length);
    return length_text(config, course(length, batch, replicas, &after));
  };
  CHECK(text("{steps: 39}", 4, 4) ==
        "trainer.steps counts steps of 8 samples, as the run began: with 16 a step it ends after "
        "step 27");
  CHECK(text("{steps: 39}", 2, 4).empty());
  CHECK(text("{epochs: 3}", 4, 4).empty());
}

TEST_CASE("an interruption does not move the schedule by a bit, with another global batch either") {
  for (std::int64_t changed = 1; changed < 30; ++changed) {
    const ResumePoint after = point(course("{steps: 39}", 4, 2), changed, changed * 8);
    const Course whole = course("{steps: 39}", 3, 2, &after);
    for (std::int64_t cut = changed + 1; cut < whole.total_steps; ++cut) {
      const ResumePoint then = point(whole, cut, (changed * 8 + (cut - changed) * 6));
      const Course on = course("{steps: 39}", 3, 2, &then);
      CHECK(on.total_steps == whole.total_steps);
      for (std::int64_t step = cut; step < on.total_steps; ++step) {
        if (on.place_of(step) != whole.place_of(step))
          FAIL_CHECK(changed << " " << cut << " " << step);
      }
    }
  }
}

TEST_CASE("at its end a run has the rate of its schedule's end, however its places are rounded") {
  const Config config = parse(
      "model: {name: linear}\ndata: {name: pmean_example, batch_size: 4}\n"
      "schedule: {name: cosine}\ntrainer: {steps: 1000}");
  for (std::int64_t place = 1; place < 20; ++place) {
    for (std::int64_t steps = 1; steps < 500; ++steps) {
      const Course course{.schedule_batch = 8,
                          .schedule_steps = 1000,
                          .phase_step = place,
                          .phase_steps = steps,
                          .phase_place = static_cast<double>(place)};
      const double rate = rate_of(config, course)(place + steps);
      if (!(rate >= 0 && rate < 1e-15)) FAIL_CHECK(place << " " << steps << ": " << rate);
    }
  }
}

TEST_CASE("without an epoch's last samples a run has the full steps of each epoch") {
  const std::string drop = ", drop_last: true";
  CHECK(course("{epochs: 3}", 4, 2, nullptr, drop).total_steps == 36);  // 12 steps of 8 in 100
  // 15 steps: an epoch's 96 of 100, and three of the next one.
  const ResumePoint after = point(course("{epochs: 3}", 4, 2, nullptr, drop), 15, 124);
  CHECK(course("{epochs: 3}", 4, 2, &after, drop).total_steps == 36);
  CHECK(course("{epochs: 3}", 4, 2, &after, drop).place_of(20) == 20);
  // 76 samples are left of the epoch: three steps of 20. The third epoch has five.
  const Course larger = course("{epochs: 3}", 5, 4, &after, drop);
  CHECK(larger.total_steps == 15 + 3 + 5);
  CHECK(larger.place_of(23) == Approx(36));
  const ResumePoint end = point(course("{epochs: 1}", 4, 2, nullptr, drop), 12, 96);
  CHECK(course("{epochs: 1}", 4, 2, &end, drop).total_steps == 12);
}

TEST_CASE("a run that has had its samples has no steps left, one that is longer now has more") {
  const ResumePoint end = point(course("{epochs: 3}", 4, 2), 39, 300);
  CHECK(course("{epochs: 3}", 4, 2, &end).total_steps == 39);
  CHECK(course("{epochs: 2}", 4, 2, &end).total_steps == 39);
  CHECK(course("{steps: 20}", 4, 2, &end).total_steps == 39);
  CHECK(course("{epochs: 4}", 4, 2, &end).total_steps == 52);
  CHECK(course("{epochs: 4}", 4, 2, &end).place_of(40) == 40);
  CHECK(course("{steps: 50}", 4, 2, &end).total_steps == 50);
}

TEST_CASE(
    "a run that becomes longer tells where its rate jumps, and schedule.steps fixes its end") {
  const auto config_of = [](const std::string& schedule, std::int64_t steps) {
    return parse(
        "model: {name: linear}\ndata: {name: pmean_example, batch_size: 4}\n"
        "optimizer: {lr: 0.5}\nparallel: {replicas: 2}\nschedule: " +
        schedule + "\ntrainer: {steps: " + std::to_string(steps) + "}");
  };
  const DataSets data{.train = testing::made_set({.size = 100})};
  const auto course_on = [&](const Config& config, const ResumePoint* from = nullptr) {
    return course_of(config, data, from);
  };
  const Config short_run = config_of("{name: cosine}", 20);
  const Course before = course_on(short_run);
  const ResumePoint end = point(before, 20, 160);
  const Config longer = config_of("{name: cosine}", 40);
  const Course after = course_on(longer, &end);
  CHECK(after.total_steps == 40);
  CHECK(jump_text(longer, after, end) ==
        "the learning rate goes from 0 to 0.25 at step 21: the schedule's length was 20 steps, is "
        "40; schedule.steps: 20 keeps it");
  // As long as it was, nothing jumps; nor does what has no end.
  const ResumePoint middle = point(before, 10, 80);
  CHECK(jump_text(short_run, course_on(short_run, &middle), middle).empty());
  const Config constant = config_of("{name: constant}", 40);
  const ResumePoint of_constant = point(course_on(config_of("{name: constant}", 20)), 20, 160);
  CHECK(jump_text(constant, course_on(constant, &of_constant), of_constant).empty());

  // Fixed, the rate stays at its end, and is what it was, to the last bit, in a longer run.
  const Config fixed = config_of("{name: cosine, steps: 20}", 40);
  for (const ResumePoint& from : {middle, end}) {
    const Course on = course_on(fixed, &from);
    CHECK(on.total_steps == 40);
    CHECK(jump_text(fixed, on, from).empty());
    const auto rate = rate_of(fixed, on);
    const auto short_rate = rate_of(short_run, before);
    for (std::int64_t step = on.first_step; step < 40; ++step) {
      CHECK(rate(step) == (step < 20 ? short_rate(step) : 0));
    }
    // And so on from there, on another global batch by samples.
    const ResumePoint later = point(on, 30, 240);
    CHECK(course_on(fixed, &later).place_of(35) == on.place_of(35));
  }
  // With a batch of twice the size a step is two of the schedule's.
  Config larger = fixed;
  larger.data_use.batch_size = 8;
  const Course twice = course_on(larger, &middle);
  CHECK(twice.total_steps == 10 + 15);
  CHECK(twice.place_of(12) == 14);
}
