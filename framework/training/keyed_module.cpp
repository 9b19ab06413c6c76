#include "framework/training/keyed_module.h"

#include <utility>

#include "framework/training/run_record.h"

namespace lockstep {

KeyedModule::KeyedModule(std::string kind, std::string what, std::string instead)
    : kind_(std::move(kind)),
      what_(what.empty() ? "KeyedModule '" + kind_ + "'" : std::move(what)),
      instead_(std::move(instead)) {}

Key KeyedModule::next_key() {
  return training::RecordedRun::next_key([this] {
    const auto position = trainer_position(what_, instead_);
    const Key key = Key(position->seed)
                        .fold(kind_)
                        .fold(position->replica)
                        .fold(position->step)
                        .fold(position->microbatch)
                        .fold(path());
    if (position_.lock() != position || microbatch_ != key.bits()) calls_ = 0;
    position_ = position;
    microbatch_ = key.bits();
    return key.fold(calls_++);
  });
}

}  // namespace lockstep
