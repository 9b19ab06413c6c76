#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// What a trainer has of a parameter.
enum class ParameterPart { values, gradients };

/// The parameters that a trainer has, for as long as it lives: no two trainers of a program can
/// keep the values of one parameter, nor average its gradients.
class ParameterClaims {
 public:
  /// `owner` is what messages call the trainer. ValueError, naming it, for a parameter of which a
  /// trainer that lives has one of these parts.
  ParameterClaims(const char* owner, std::vector<ParameterPart> parts,
                  const std::vector<std::string>& names, std::vector<at::Tensor> parameters);
  ~ParameterClaims();
  ParameterClaims(const ParameterClaims&) = delete;
  ParameterClaims& operator=(const ParameterClaims&) = delete;

 private:
  std::vector<ParameterPart> parts_;
  std::vector<at::Tensor> parameters_;
};

}  // namespace lockstep
