#include "framework/reduce/element_type.h"

namespace lockstep::reduce {
namespace {

// In the order of the enumerations.
constexpr struct {
  const char* name;
  std::size_t size;
} kTypes[] = {{"float64", 8}, {"float32", 4}, {"float16", 2}, {"bfloat16", 2}, {"int64", 8},
              {"int32", 4},   {"int16", 2},   {"int8", 1},    {"uint8", 1},    {"bool", 1}};
constexpr const char* kOps[] = {"sum", "mean", "max", "min"};

}  // namespace

bool is_floating(ElementType type) {
  return type <= ElementType::bfloat16;
}

std::size_t size_of(ElementType type) {
  return kTypes[static_cast<std::size_t>(type)].size;
}

const char* name_of(ElementType type) {
  return kTypes[static_cast<std::size_t>(type)].name;
}

const char* name_of(ReduceOp op) {
  return kOps[static_cast<std::size_t>(op)];
}

}  // namespace lockstep::reduce
