#pragma once

namespace lockstep::collectives {

/// From the first call on, LibTorch's dispatcher hands over the operations of threads that have a
/// tree::VarianceScope, so that the axes over which their results vary are known. A program that
/// never calls it has LibTorch's dispatcher as it was. Any thread.
void track_operations();

}  // namespace lockstep::collectives
