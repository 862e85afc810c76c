# The CUDA kernels of ops/cuda are optional (docs/cuda.md, "Building"). Sets DEEPINFER_HAS_CUDA.
#
#   -DDEEPINFER_CUDA=AUTO  (default) on where nvcc is installed and the machine has an NVIDIA driver: a machine that can
#                          only compile the kernels need not wait for them
#   -DDEEPINFER_CUDA=ON    on; an error without nvcc
#   -DDEEPINFER_CUDA=OFF   off
set(DEEPINFER_CUDA AUTO CACHE STRING "CUDA kernels: AUTO (nvcc and a driver are there), ON or OFF")
set_property(CACHE DEEPINFER_CUDA PROPERTY STRINGS AUTO ON OFF)
set(DEEPINFER_CUDA_ARCHITECTURES "90a;100" CACHE STRING "GPU targets of the CUDA kernels, as nvcc spells them after sm_")

set(DEEPINFER_HAS_CUDA OFF)
if(DEEPINFER_CUDA)
  find_program(DEEPINFER_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(DEEPINFER_CUDA STREQUAL "AUTO")
    if(DEEPINFER_NVCC AND EXISTS /proc/driver/nvidia/version AND NOT DEEPINFER_SANITIZE)
      set(DEEPINFER_HAS_CUDA ON)
    endif()
  elseif(DEEPINFER_NVCC)
    set(DEEPINFER_HAS_CUDA ON)
  else()
    message(FATAL_ERROR "DEEPINFER_CUDA=ON needs nvcc of CUDA 12.8 or newer on the PATH; -DDEEPINFER_CUDA=OFF builds for the CPU")
  endif()
endif()

if(DEEPINFER_HAS_CUDA)
  set(CMAKE_CUDA_COMPILER ${DEEPINFER_NVCC})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  set(CMAKE_CUDA_ARCHITECTURES OFF)  # written out below: this CMake does not know 90a
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not ask this nvcc
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  find_package(CUDAToolkit 12.8 REQUIRED)
endif()

# deepinfer_cuda_library(NAME sources...): kernels for every architecture; the runtime is linked statically, the driver is
# found when the program runs.
function(deepinfer_cuda_library name)
  add_library(${name} STATIC ${ARGN})
  set_target_properties(${name} PROPERTIES CUDA_RUNTIME_LIBRARY None)
  target_link_libraries(${name} PUBLIC deepinfer_options CUDA::cudart_static)
  foreach(architecture ${DEEPINFER_CUDA_ARCHITECTURES})
    list(APPEND targets "SHELL:-gencode arch=compute_${architecture},code=sm_${architecture}")
  endforeach()
  # --fmad=false as -ffp-contract=off for the CPU: a fused multiply-add happens only where the code asks for it.
  target_compile_options(${name} PRIVATE ${targets} --fmad=false --expt-relaxed-constexpr
    "SHELL:-Xcompiler -Wall,-Wextra,-Werror" --Werror all-warnings)
endfunction()
