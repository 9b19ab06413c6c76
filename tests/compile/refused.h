#pragma once

// What the cases of refused.cpp are about. check.cmake compiles it once for all of them.

#include <map>
#include <string>

#include <ATen/TensorOperators.h>

#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/maps/pmap.h"
#include "framework/maps/shard_map.h"
#include "framework/maps/vmap.h"
#include "framework/tree/grad.h"
