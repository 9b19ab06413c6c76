#include "framework/reduce/element_type.h"

namespace lockstep::reduce {
namespace {

// In the order of the enumeration.
constexpr const char* kOps[] = {"sum", "mean", "max", "min"};

}  // namespace

bool is_floating(ElementType type) {
  return type <= ElementType::bfloat16;
}

const char* name_of(ReduceOp op) {
  return kOps[static_cast<std::size_t>(op)];
}

}  // namespace lockstep::reduce
