// A program of a user's.

#include "tests/train/own_parts.h"

int main(int argc, char** argv) {
  return lockstep::testing::own_main(argc, argv);
}
