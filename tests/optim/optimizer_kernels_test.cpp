#include "framework/optim/optimizer_kernels.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/catch.h"
#include "tests/support/settings.h"

using namespace lockstep;

namespace {

using Bytes = std::vector<std::byte>;

// A buffer that begins `offset` bytes into a vector, between bytes that show whether one wrote past
// its ends.
class Fenced {
 public:
  Fenced(std::size_t bytes, std::size_t offset)
      : begin_(kFence + offset), bytes_(bytes), memory_(begin_ + bytes + kFence, kMark) {}

  [[nodiscard]] std::byte* data() { return memory_.data() + begin_; }
  [[nodiscard]] bool is_intact() const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const bool inside = i >= begin_ && i < begin_ + bytes_;
      if (!inside && memory_[i] != kMark) return false;
    }
    return true;
  }
  friend bool operator==(const Fenced& a, const Fenced& b) {
    return std::memcmp(a.memory_.data() + a.begin_, b.memory_.data() + b.begin_, a.bytes_) == 0;
  }

 private:
  static constexpr std::size_t kFence = 64;
  static constexpr std::byte kMark{0xa5};

  std::size_t begin_;
  std::size_t bytes_;
  Bytes memory_;
};

struct Buffers {
  Fenced parameter, gradient, first, second, third;
};

// Values of all magnitudes, some 0 or infinite; the same for the same seed. No NaN, whose bits are
// left open, comes of the rules below: parameters and state are finite.
template <typename T>
Buffers random_buffers(std::size_t count, std::size_t offset, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto unit = [&] { return std::ldexp(static_cast<double>(random() >> 11), -52) - 1; };
  Buffers all{Fenced(count * sizeof(T), offset), Fenced(count * sizeof(T), offset + sizeof(T)),
              Fenced(count * sizeof(T), offset), Fenced(count * sizeof(T), offset + 8),
              Fenced(count * sizeof(T), offset + 16)};
  const auto put = [](Fenced& buffer, std::size_t i, double value) {
    const T element = static_cast<T>(value);
    std::memcpy(buffer.data() + i * sizeof(T), &element, sizeof(T));
  };
  for (std::size_t i = 0; i < count; ++i) {
    const int magnitude = static_cast<int>(random() % 100) - 50;
    put(all.parameter, i, unit());
    put(all.gradient, i, random() % 10 == 0 ? 0 : std::ldexp(unit(), magnitude));
    if (random() % 20 == 0) put(all.gradient, i, std::numeric_limits<double>::infinity());
    put(all.first, i, unit());
    put(all.second, i, std::fabs(unit()));
    put(all.third, i, std::fabs(unit()));
  }
  return all;
}

const optim::UpdateNumbers kNumbers{.gradient_scale = 0.37,
                                    .clip_value = 2.5,
                                    .weight_decay = 0.013,
                                    .lr = 0.0123,
                                    .momentum = 0.91,
                                    .undamped = 0.6,
                                    .of_g = 1,
                                    .of_buffer = 0.91,
                                    .beta1 = 0.9,
                                    .beta2 = 0.999,
                                    .keep = 0.9987,
                                    .root_scale = 31.7,
                                    .eps = 1e-8};

// One element by the formulas in the header.
template <typename T>
struct Element {
  T parameter, gradient, first, second, third;

  T g() const {
    const auto clip = static_cast<T>(kNumbers.clip_value);
    T scaled = gradient * static_cast<T>(kNumbers.gradient_scale);
    scaled = std::fmin(std::fmax(scaled, -clip), clip);
    return scaled + static_cast<T>(kNumbers.weight_decay) * parameter;
  }
  void sgd() { parameter -= static_cast<T>(kNumbers.lr) * g(); }
  void momentum() {
    const T direct = g();
    first = static_cast<T>(kNumbers.momentum) * first + static_cast<T>(kNumbers.undamped) * direct;
    const T direction =
        static_cast<T>(kNumbers.of_g) * direct + static_cast<T>(kNumbers.of_buffer) * first;
    parameter -= static_cast<T>(kNumbers.lr) * direction;
  }
  void adam() {
    move_means();
    step_by(second);
  }
  void amsgrad() {
    move_means();
    third = std::fmax(third, second);
    step_by(third);
  }

 private:
  void move_means() {
    const T direct = g();
    first = static_cast<T>(kNumbers.beta1) * first + static_cast<T>(1 - kNumbers.beta1) * direct;
    second = static_cast<T>(kNumbers.beta2) * second +
             static_cast<T>(1 - kNumbers.beta2) * direct * direct;
  }
  void step_by(T square) {
    const T root = static_cast<T>(kNumbers.root_scale) * std::sqrt(square);
    const T step = first / (root + static_cast<T>(kNumbers.eps));
    parameter = static_cast<T>(kNumbers.keep) * parameter - static_cast<T>(kNumbers.lr) * step;
  }
};

template <typename T>
void one_at_a_time(Buffers& all, std::size_t count, void (Element<T>::*rule)()) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = i * sizeof(T);
    Element<T> element;
    std::memcpy(&element.parameter, all.parameter.data() + at, sizeof(T));
    std::memcpy(&element.gradient, all.gradient.data() + at, sizeof(T));
    std::memcpy(&element.first, all.first.data() + at, sizeof(T));
    std::memcpy(&element.second, all.second.data() + at, sizeof(T));
    std::memcpy(&element.third, all.third.data() + at, sizeof(T));
    (element.*rule)();
    std::memcpy(all.parameter.data() + at, &element.parameter, sizeof(T));
    std::memcpy(all.first.data() + at, &element.first, sizeof(T));
    std::memcpy(all.second.data() + at, &element.second, sizeof(T));
    std::memcpy(all.third.data() + at, &element.third, sizeof(T));
  }
}

template <typename T>
void check_rule(optim::ElementKernels optim::OptimizerKernels::*elements,
                optim::ElementKernels::Update optim::ElementKernels::*update,
                void (Element<T>::*rule)()) {
  for (const std::size_t count : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 130, 257}) {
    for (const std::size_t offset : {0, 4, 12, 60}) {
      Buffers expected = random_buffers<T>(count, offset, testing::seed() + count);
      one_at_a_time(expected, count, rule);
      for (const optim::OptimizerKernels& kernels : optim::optimizer_kernels()) {
        CAPTURE(kernels.name, count, offset);
        Buffers all = random_buffers<T>(count, offset, testing::seed() + count);
        (kernels.*elements.*update)(
            {.parameter = all.parameter.data(),
             .gradient = all.gradient.data(),
             .state = {all.first.data(), all.second.data(), all.third.data()},
             .count = count},
            kNumbers);
        REQUIRE(all.parameter == expected.parameter);
        REQUIRE(all.gradient == expected.gradient);
        REQUIRE(all.first == expected.first);
        REQUIRE(all.second == expected.second);
        REQUIRE(all.third == expected.third);
        for (const Fenced* const buffer :
             {&all.parameter, &all.gradient, &all.first, &all.second, &all.third}) {
          REQUIRE(buffer->is_intact());
        }
      }
    }
  }
}

// The sum of a block as the header of the kernels leaves open: eight lanes, then a tree.
template <typename T>
double block_sum(const std::vector<T>& values, std::size_t begin) {
  double lanes[8] = {};
  for (std::size_t i = begin; i < std::min(begin + optim::kSquaresBlock, values.size()); ++i) {
    const auto value = static_cast<double>(values[i]);
    lanes[(i - begin) % 8] += value * value;
  }
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

template <typename T>
void check_squares(optim::ElementKernels optim::OptimizerKernels::*elements) {
  std::mt19937_64 random(testing::seed());
  for (const std::size_t count : {1, 7, 63, 64, 65, 127, 128, 300, 511, 512, 513, 1000, 1024}) {
    std::vector<T> values(count);
    for (T& value : values) {
      value = static_cast<T>(std::ldexp(static_cast<double>(random() >> 11) - 0x1p52,
                                        -60 + static_cast<int>(random() % 16)));
    }
    const std::size_t blocks = (count + optim::kSquaresBlock - 1) / optim::kSquaresBlock;
    for (const optim::OptimizerKernels& kernels : optim::optimizer_kernels()) {
      CAPTURE(kernels.name, count);
      std::vector<double> sums(blocks + 1, -1);
      (kernels.*elements)
          .sums_of_squares(reinterpret_cast<const std::byte*>(values.data()), count, sums.data());
      for (std::size_t i = 0; i < blocks; ++i) {
        REQUIRE(sums[i] == block_sum(values, i * optim::kSquaresBlock));
      }
      REQUIRE(sums[blocks] == -1);
    }
  }
}

}  // namespace

TEST_CASE("all kernels give the bits of the formulas on one element at a time", "[optim]") {
  INFO("seed " << testing::seed());
  const auto float32 = &optim::OptimizerKernels::float32;
  const auto float64 = &optim::OptimizerKernels::float64;
  check_rule(float32, &optim::ElementKernels::sgd, &Element<float>::sgd);
  check_rule(float32, &optim::ElementKernels::momentum, &Element<float>::momentum);
  check_rule(float32, &optim::ElementKernels::adam, &Element<float>::adam);
  check_rule(float32, &optim::ElementKernels::amsgrad, &Element<float>::amsgrad);
  check_rule(float64, &optim::ElementKernels::sgd, &Element<double>::sgd);
  check_rule(float64, &optim::ElementKernels::momentum, &Element<double>::momentum);
  check_rule(float64, &optim::ElementKernels::adam, &Element<double>::adam);
  check_rule(float64, &optim::ElementKernels::amsgrad, &Element<double>::amsgrad);
}

TEST_CASE("all kernels sum squares in one order", "[optim]") {
  INFO("seed " << testing::seed());
  check_squares<float>(&optim::OptimizerKernels::float32);
  check_squares<double>(&optim::OptimizerKernels::float64);
}
