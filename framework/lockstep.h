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
#include "framework/replicas/launch.h"
#include "framework/replicas/pmap.h"
#include "framework/tree/grad.h"
#include "framework/tree/tree.h"
