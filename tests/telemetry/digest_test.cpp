#include "framework/telemetry/digest.h"

#include <ATen/Functions.h>

#include "framework/base/errors.h"
#include "tests/catch.h"

namespace lockstep {
namespace {

// The expected digests are those of Python's hashlib over struct.pack("<…") of the same values.

TEST_CASE("the digest of no parameters is SHA-256 of nothing", "[telemetry]") {
  constexpr const char* kNothing =
      "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
  CHECK(parameters_sha256({}) == kNothing);
  CHECK(parameters_sha256({{"empty", at::zeros({0, 3})}}) == kNothing);
}

TEST_CASE("the digest of the bytes \"abc\" is the standard's", "[telemetry]") {
  CHECK(parameters_sha256({{"text", at::tensor({0x61, 0x62, 0x63}, at::kByte)}}) ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("tensors are hashed in the order of their names", "[telemetry]") {
  CHECK(parameters_sha256({{"b", at::tensor({0.5}, at::kDouble)},
                           {"a", at::tensor({1.0F, 2.0F}).requires_grad_()}}) ==
        "62de295187ca6e760f318c8043d4293d1478ccb604fb791cd82e756e3c3176f5");
  const at::Tensor w = at::full({1, 1}, 2.625, at::kFloat);
  const at::Tensor b = at::full({1}, 0.16, at::kFloat);
  CHECK(parameters_sha256({{"w", w}, {"b", b}}) ==
        "82db04f5936227278f24c73541e0bc099d4353489dc4f44700fab22197277106");
  CHECK(parameters_sha256({{"1", w}, {"2", b}}) ==
        "091e91de2665c804161d4030073ae2d84e74588ff7643ab84df4a47907ce424b");
}

TEST_CASE("the digest is over values in row-major order, however they lie", "[telemetry]") {
  const at::Tensor counted = at::arange(6, at::kLong);
  constexpr const char* kCounted =
      "f190072c5052f4f440d4a607c25f5bced487c420806c9aab4ca5b0653e72da61";
  CHECK(parameters_sha256({{"x", counted}}) == kCounted);
  const at::Tensor columns = counted.view({2, 3}).t().contiguous();
  CHECK(parameters_sha256({{"x", columns.t()}}) == kCounted);
  CHECK(parameters_sha256({{"x", columns}}) != kCounted);
}

TEST_CASE("one bit changes the digest", "[telemetry]") {
  const at::Tensor values = at::zeros({1000});
  const std::string before = parameters_sha256({{"x", values}});
  values[999] = -0.0F;
  CHECK(parameters_sha256({{"x", values}}) != before);
}

TEST_CASE("an undefined tensor has no digest", "[telemetry]") {
  CHECK_THROWS_AS(parameters_sha256({{"w", at::Tensor()}}), ValueError);
  CHECK_THROWS_WITH(parameters_sha256({{"w", at::Tensor()}}),
                    ContainsSubstring("'w' is undefined"));
}

}  // namespace
}  // namespace lockstep
