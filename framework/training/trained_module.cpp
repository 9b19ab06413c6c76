#include "framework/training/trained_module.h"

#include "framework/axes/environment.h"
#include "framework/base/text.h"

namespace lockstep {

std::shared_ptr<const TrainerPosition> TrainedModule::trainer_position(
    const std::string& what, const std::string& instead) const {
  auto position = position_.lock();
  require<Error>(
      position != nullptr, "a ", what,
      " in training mode belongs to no trainer that lives, which says what step it is: "
      "make a ZeroTrainer or a DataParallel for a module that registers it, call eval() for "
      "an evaluation, or ",
      instead);
  require<Error>(position->identity == current_identity(), what, " '", path_,
                 "' runs in a map inside the replica that trains it, or in another thread: there ",
                 instead);
  return position;
}

}  // namespace lockstep
