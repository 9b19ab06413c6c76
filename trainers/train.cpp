// The binary `train`.

#include "trainers/train_main.h"

int main(int argc, char** argv) {
  return lockstep::train_main(argc, argv);
}
