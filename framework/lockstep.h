#pragma once

// All of Lockstep.

#include <ATen/TensorOperators.h>

#include "framework/axes/axis_names.h"
#include "framework/axes/environment.h"
#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/shard.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/collectives/psum_scatter.h"
#include "framework/data/data.h"
#include "framework/data/sampler.h"
#include "framework/optim/clip.h"
#include "framework/optim/optimizer.h"
#include "framework/replicas/launch.h"
#include "framework/replicas/pmap.h"
#include "framework/telemetry/digest.h"
#include "framework/telemetry/metrics.h"
#include "framework/telemetry/progress.h"
#include "framework/telemetry/run_folder.h"
#include "framework/training/gradient_averaging.h"
#include "framework/tree/grad.h"
#include "framework/tree/tree.h"
