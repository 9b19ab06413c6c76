#include "trainers/bench/report.h"

namespace lockstep::bench {

double bus_bandwidth(const OperationResult& result, const SizeResult& size,
                     const Measurement& measurement) {
  return bus_bytes(result.operation, result.replicas, size.bytes) / measurement.seconds.median;
}

double share_of_limit(const OperationResult& result, const SizeResult& size,
                      const Measurement& measurement) {
  return moved_bytes(result.operation, result.replicas, size.bytes) / measurement.seconds.median /
         result.limit.bytes_per_second;
}

}  // namespace lockstep::bench
