#include "framework/reduce/element_type.h"

#include "framework/base/errors.h"

namespace lockstep {

bool is_floating(ElementType type) {
  return type == ElementType::float64 || type == ElementType::float32 ||
         type == ElementType::float16 || type == ElementType::bfloat16;
}

std::size_t size_of(ElementType type) {
  switch (type) {
    case ElementType::float64:
    case ElementType::int64:
      return 8;
    case ElementType::float32:
    case ElementType::int32:
      return 4;
    case ElementType::float16:
    case ElementType::bfloat16:
    case ElementType::int16:
      return 2;
    case ElementType::int8:
    case ElementType::uint8:
    case ElementType::boolean:
      return 1;
  }
  throw ValueError("unknown element type");
}

const char* name_of(ElementType type) {
  switch (type) {
    case ElementType::float64:
      return "float64";
    case ElementType::float32:
      return "float32";
    case ElementType::float16:
      return "float16";
    case ElementType::bfloat16:
      return "bfloat16";
    case ElementType::int64:
      return "int64";
    case ElementType::int32:
      return "int32";
    case ElementType::int16:
      return "int16";
    case ElementType::int8:
      return "int8";
    case ElementType::uint8:
      return "uint8";
    case ElementType::boolean:
      return "bool";
  }
  throw ValueError("unknown element type");
}

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::mean:
      return "mean";
    case ReduceOp::max:
      return "max";
    case ReduceOp::min:
      return "min";
  }
  throw ValueError("unknown reduction");
}

}  // namespace lockstep
