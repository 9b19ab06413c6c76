#pragma once

namespace lockstep::collectives {

/// Makes LibTorch's dispatcher hand over the operations of threads that have a tree::VarianceScope,
/// to track how results vary. Until the first call the dispatcher is as it was. Any thread.
void track_operations();

}  // namespace lockstep::collectives
