#include "framework/training/parameter_claims.h"

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

struct Owners {
  std::mutex mutex;
  std::map<std::pair<const void*, ParameterPart>, const char*> of;
};

Owners& owners() {
  static Owners all;
  return all;
}

}  // namespace

ParameterClaims::ParameterClaims(const char* owner, std::vector<ParameterPart> parts,
                                 const std::vector<std::string>& names,
                                 std::vector<at::Tensor> parameters)
    : parts_(std::move(parts)), parameters_(std::move(parameters)) {
  Owners& all = owners();
  const std::lock_guard lock(all.mutex);
  for (const ParameterPart part : parts_) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const auto found = all.of.find({parameters_[i].unsafeGetTensorImpl(), part});
      if (found == all.of.end()) continue;
      throw ValueError(lockstep::str(
          owner, ": parameter '", names[i], "' belongs to a ", found->second,
          " that is still alive: end that one first; and each replica needs a module of its own"));
    }
  }
  for (const ParameterPart part : parts_) {
    for (const at::Tensor& parameter : parameters_) {
      all.of.emplace(std::pair{parameter.unsafeGetTensorImpl(), part}, owner);
    }
  }
}

ParameterClaims::~ParameterClaims() {
  Owners& all = owners();
  const std::lock_guard lock(all.mutex);
  for (const ParameterPart part : parts_) {
    for (const at::Tensor& parameter : parameters_) {
      all.of.erase({parameter.unsafeGetTensorImpl(), part});
    }
  }
}

}  // namespace lockstep
