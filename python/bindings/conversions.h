// Python values -> the engine's structures. Errors are InvalidArgumentError, `field: expected ..., found ...`.
//
// Thread-safety: the GIL is held. Ownership: results own what they hold.
#ifndef DEEPINFER_PYTHON_CONVERSIONS_H_
#define DEEPINFER_PYTHON_CONVERSIONS_H_

#include <pybind11/pybind11.h>

#include <string>

#include "deepinfer/engine.h"

namespace deepinfer::python {

/// The defaults, what the environment says, then the entries of `given`, named as the members of EngineOptions.
EngineOptions EngineOptionsFrom(const pybind11::dict& given);

/// From an object with the attributes of deepinfer.SamplingParams; its seed must be known. Validated.
SamplingParams SamplingParamsFrom(const pybind11::object& given);

/// bounded, exact.
ReplayMode ReplayModeFrom(const std::string& name);

/// 1 to 100, or low, medium, high and so on; None is the default.
int EffortFrom(const pybind11::object& given);

pybind11::dict StatisticsDict(const EngineStatistics& statistics);
pybind11::dict EngineOptionsDict(const EngineOptions& options);

}  // namespace deepinfer::python

#endif  // DEEPINFER_PYTHON_CONVERSIONS_H_
