#include <string>

#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/files.h"
#include "tests/support/occurrences.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Runs of the program whose parts are those of faulty_parts.cpp.
class FaultyRuns {
 public:
  FaultyRuns() {
    folder_.write("faulty.yaml",
                  "model: {name: faulty}\n"
                  "data: {name: faulty, batch_size: 4}\n"
                  "optimizer: {name: sgd, lr: 0.01}\n"
                  "parallel: {replicas: 2, launch: threads}\n"
                  "trainer: {steps: 4, metrics: [loss]}\n"
                  "checkpoint: {every: 0}\n");
  }

  // What a run writes to stderr where it ends with this status.
  std::string error_of(const std::string& keys, int status = 1, const Flags& command = {},
                       const Flags& environment = {}) {
    const Flags output =
        command.empty() ? Flags{"--quiet", "--output", "run" + std::to_string(++runs_)} : Flags{};
    const Ended end =
        own_train(folder_.path(), command + Flags{"--config", "faulty.yaml"} + output + set(keys),
                  environment);
    check_status(end, status);
    return end.err;
  }

  const TemporaryFolder& folder() const { return folder_; }

 private:
  TemporaryFolder folder_;
  int runs_ = 0;
};

const std::string kShape = "mat1 and mat2 shapes cannot be multiplied (4x8 and 6x2)";

}  // namespace

TEST_CASE("an exception of LibTorch in a model names the module, the shapes and the step") {
  FaultyRuns runs;
  for (const std::string launch : {"threads", "processes"}) {
    INFO(launch);
    const std::string error = runs.error_of("model.fault=shape parallel.launch=" + launch);
    CHECK_THAT(error, ContainsSubstring(": replica 0") || ContainsSubstring(": replica 1"));
    // Some versions of LibTorch have linear there, others what it consists of.
    CHECK_THAT(error, ContainsSubstring(kShape + " (in 'encoder.fc2': ") &&
                          ContainsSubstring(" of ") && ContainsSubstring("Float (4, 8)") &&
                          ContainsSubstring("; inputs Float (4, 1); step 1)"));
    CHECK_THAT(error, !ContainsSubstring("Exception raised from"));
  }
  CHECK_THAT(runs.error_of("model.fault=shape trainer.accumulate=2"),
             ContainsSubstring("; inputs Float (4, 1); step 1, microbatch 0)"));
}

TEST_CASE("the place of an exception in a model is found whatever kind it is of") {
  FaultyRuns runs;
  CHECK_THAT(runs.error_of("model.fault=view"),
             ContainsSubstring("is invalid for input of size 32 (in view of Float (4, 8), after "
                               "'encoder.fc1'; inputs Float (4, 1); step 1)"));
  CHECK_THAT(runs.error_of("model.fault=dtype"),
             ContainsSubstring(" (in 'encoder.fc1': ") && ContainsSubstring("Double (4, 1)") &&
                 ContainsSubstring("; inputs Float (4, 1); step 1)"));
  CHECK_THAT(
      runs.error_of("model.fault=throws"),
      ContainsSubstring(": no such head (after 'encoder.fc1'; inputs Float (4, 1); step 1)"));
  CHECK_THAT(runs.error_of("model.fault=training"),
             ContainsSubstring("(4x5 and 8x2) (in 'encoder.fc2': "));
  // Behind a collective, which one replica can't call alone.
  CHECK_THAT(runs.error_of("model.fault=waits"),
             ContainsSubstring(kShape + " (inputs Float (4, 1); step 1)"));
  CHECK_THAT(runs.error_of("model.fault=backward"),
             ContainsSubstring("is invalid for input of size 7 (in the backward of step 1)"));
}

TEST_CASE("a summary tells where a model fails") {
  FaultyRuns runs;
  CHECK_THAT(runs.error_of("model.fault=shape", 1, {"summary"}),
             ContainsSubstring("x8 and 6x2) (in 'encoder.fc2': "));
}

TEST_CASE("an exception of a data set names the set and the sample") {
  FaultyRuns runs;
  CHECK_THAT(runs.error_of("data.fault=gather"),
             ContainsSubstring(": no such line (sample 20 ('row-20') of the training set; step "));
  CHECK_THAT(runs.error_of("data.fault=file", 2),
             ContainsSubstring(": sound.wav is cut short (sample 20 ('row-20') of the training "
                               "set; step "));
}

TEST_CASE("a sample that can't be made before the job starts is named, too") {
  FaultyRuns runs;
  CHECK_THAT(runs.error_of("data.fault=early checkpoint.every=1"),
             ContainsSubstring("no such line (sample 20 ('row-20'); the set '") &&
                 ContainsSubstring("'; the data 'faulty')"));
  CHECK_THAT(runs.error_of("data.fault=first", 1, {"summary"}),
             ContainsSubstring("no such line (sample 0 ('row-0') of the training set)"));
  CHECK_THAT(
      runs.error_of("data.fault=gather", 1, {"check"}),
      ContainsSubstring("no such line (sample 20 ('row-20'); the train set of the data 'faulty')"));
}

TEST_CASE("train check names targets that are no class") {
  FaultyRuns runs;
  const Ended end = own_train(runs.folder().path(),
                              Flags{"check", "--config", "faulty.yaml"} + set("data.fault=target"));
  check_status(end, 2);
  CHECK_THAT(end.out,
             ContainsSubstring("train, sample 20: a target that is 6, but must be a class, 0 to 1\n"
                               "train: 24 samples, 1 damaged\n"));
}

TEST_CASE("a target that a loss refuses is told as the sample that has it") {
  FaultyRuns runs;
  // By Lockstep's loss, whose text has the row of the microbatch, and by LibTorch's.
  CHECK_THAT(
      runs.error_of("data.fault=target trainer.steps=12", 2),
      ContainsSubstring(" is 6; it must be a class, 0 to 1 (row ") &&
          ContainsSubstring(" is sample 20 ('row-20') of the training set; the loss; step "));
  CHECK_THAT(runs.error_of("data.fault=target loss.name=faulty trainer.steps=12"),
             ContainsSubstring("Target 6 is out of bounds. (row ") &&
                 ContainsSubstring(" is sample 20 ('row-20') of the training set; loss 'faulty' of "
                                   "outputs Float (4, 2), targets Long (4); step "));
  // Outputs that are not of the samples are the model's fault.
  CHECK_THAT(runs.error_of("model.fault=rows loss.name=faulty"),
             ContainsSubstring(" (loss 'faulty' of outputs Float (1, 2), targets Long (4); step "));
}

TEST_CASE("exceptions of losses, metrics, optimizers and callbacks name these") {
  FaultyRuns runs;
  CHECK_THAT(runs.error_of("loss.name=faulty loss.fault=shape"),
             ContainsSubstring(" (metric loss of an output of zeros, Float (1, 2))"));
  CHECK_THAT(runs.error_of("trainer.metrics=[faulty]"),
             ContainsSubstring(": no figure (metric 'faulty' of outputs Float (4, 2), targets Long "
                               "(4); in the evaluation on the test set, step 4)"));
  CHECK_THAT(runs.error_of("trainer.metrics=[faulty_value]"),
             ContainsSubstring(": no value (metric 'faulty_value'; in the evaluation on the test "
                               "set, step 4)"));
  CHECK_THAT(runs.error_of("optimizer.name=faulty"),
             ContainsSubstring(" (in the optimizer's step 1 of parameter 'encoder.fc"));
  for (const std::string callback :
       {"before_first_step", "after_step", "needs_loss", "after_evaluation"}) {
    INFO(callback);
    CHECK_THAT(runs.error_of("trainer.steps=3", 1, {}, {"FAULTY_CALLBACK=" + callback}),
               ContainsSubstring(": the list is full (in the callback " + callback + ", step "));
  }
}

TEST_CASE("a crash in a callback names callback and step, and how the run goes on") {
  FaultyRuns runs;
  const std::string error = runs.error_of(
      "trainer.eval_every=2 parallel.launch=processes checkpoint.every=1 checkpoint.async=false", 3,
      {"--output", "crashed"}, {"FAULTY_CALLBACK=after_evaluation", "CRASHES=1"});
  CHECK_THAT(error,
             ContainsSubstring(" was lost: killed by signal 11 (Segmentation fault); replica ") &&
                 ContainsSubstring(" has been in its callback after_evaluation of step 2 for 0"));
  CHECK_THAT(error,
             ContainsSubstring("lockstep: --output crashed --resume auto goes on from step 1; "
                               "own_train inspect crashed tells what replicas did last\n"));
  const Ended told = own_train(runs.folder().path(), {"inspect", "crashed"});
  CHECK_THAT(told.out, ContainsSubstring("in its callback after_evaluation, step 2, for 0"));
}

TEST_CASE("a metric whose sums have another length for another batch is refused by its name") {
  FaultyRuns runs;
  CHECK_THAT(runs.error_of("trainer.metrics=[growing]", 2),
             ContainsSubstring("trainer.metrics: metric 'growing': add() returns Double (1) of one "
                               "batch and Double (2) of another; sums have one dimension, "));
}

TEST_CASE("a model of more outputs than classes is told once, and eval tells of all outputs") {
  FaultyRuns runs;
  const std::string warning =
      "warning: the model has 5 outputs, and the data have 2 classes: a model of one's own takes "
      "the number from SampleType::outputs()\n";
  CHECK(count(runs.error_of("model.fault=wide trainer.accumulate=2", 0), warning) == 1);
  CHECK_THAT(runs.error_of("trainer.steps=1", 0), !ContainsSubstring("outputs, and"));
  const Ended eval =
      own_train(runs.folder().path(), {"eval", "--checkpoint", "run1/checkpoints/latest"});
  check_status(eval, 0);
  CHECK_THAT(eval.out, ContainsSubstring("\n  4                     0     0.0000") &&
                           ContainsSubstring("predicted (columns):\n      0  1  2  3  4\n"));
}

TEST_CASE("what is made or loaded is named where that throws") {
  FaultyRuns runs;
  CHECK_THAT(runs.error_of("model.fault=making"),
             ContainsSubstring("no such width (in the making of model 'faulty')"));
  CHECK_THAT(runs.error_of("data.fault=loading"),
             ContainsSubstring("no such column (in the loading of the data 'faulty')"));
}

TEST_CASE("TORCH_SHOW_CPP_STACKTRACES=1 shows LibTorch's stack") {
  const FaultyRuns runs;
  // LibTorch reads it once in a program.
  const Ended end = run_program(Flags{"/usr/bin/env", "TORCH_SHOW_CPP_STACKTRACES=1",
                                      OWN_TRAIN_BINARY, "--config", "faulty.yaml"} +
                                    set("model.fault=shape"),
                                runs.folder().path());
  check_status(end, 1);
  CHECK_THAT(end.err, ContainsSubstring(kShape) && ContainsSubstring("in 'encoder.fc2'") &&
                          ContainsSubstring("Exception raised from"));
}
