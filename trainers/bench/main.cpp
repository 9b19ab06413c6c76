// The measurements: what Lockstep's operations take, beside others' and beside what the machine can
// do.

#include "trainers/bench/session.h"

int main(int argc, char** argv) {
  return lockstep::bench::bench_main(argc, argv);
}
