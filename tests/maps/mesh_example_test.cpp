#include "tests/maps/mesh_example.h"

#include "tests/catch.h"

using namespace lockstep::testing;

TEST_CASE("example: a tensor-parallel MLP in data parallelism") {
  CHECK_NOTHROW(check_tensor_parallel_mlp());
}

TEST_CASE("example: a pipeline in data parallelism") {
  CHECK_NOTHROW(check_pipeline());
}
