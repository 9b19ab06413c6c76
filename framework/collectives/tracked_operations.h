#pragma once

namespace lockstep::collectives {

/// From the first call on, LibTorch's dispatcher hands over operations of threads that have a
/// tree::VarianceScope, to know how results vary. Until then it is as it was. Any thread.
void track_operations();

}  // namespace lockstep::collectives
