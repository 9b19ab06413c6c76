#include "framework/telemetry/tensor_image.h"

#include "framework/base/text.h"

namespace lockstep::telemetry {

formats::Image image_of(const std::string& what, at::Tensor values) {
  if (values.dim() == 2) values = values.unsqueeze(0);
  require(values.dim() == 3 && (values.size(0) == 1 || values.size(0) == 3) && values.numel() > 0,
          what, " has the shape ", values.sizes(),
          ", but must be (1 or 3, height, width) or (height, width)");
  require(values.is_floating_point() || values.scalar_type() == at::kByte, what,
          " has elements of ", values.scalar_type(),
          ", but must have bytes, or floating-point values from 0 to 1");
  if (values.is_floating_point()) {
    values = values.to(at::kFloat).nan_to_num().mul(255).clamp(0, 255);
  }
  const at::Tensor bytes = values.to(at::kByte).permute({1, 2, 0}).contiguous();
  const auto* const data = bytes.data_ptr<std::uint8_t>();
  return {bytes.size(0), bytes.size(1), bytes.size(2), {data, data + bytes.numel()}};
}

}  // namespace lockstep::telemetry
