#include <lockstep/framework/replicas/launch.h>
#include <models/model.h>
#include <trainers/train_main.h>

#include "framework/lockstep.h"
#include "framework/replicas/pmap.h"
#include "trainers/trainer.h"

int train(int argc, char** argv, const lockstep::StepEnd& last) {
  return last.step > 0 ? lockstep::train_main(argc, argv) : 0;
}
