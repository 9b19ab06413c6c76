#pragma once

#include <string>

#include "framework/engines/whereabouts.h"

namespace lockstep::engines {

/// For a program of which one on each host runs all its replicas: ValueError on all tasks, with the
/// command that would be right, if the engine has started several on some host.
void require_one_task(const Whereabouts& where, const std::string& program);

}  // namespace lockstep::engines
