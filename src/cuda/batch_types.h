// Types of the calls that copy in batches. Part of driver_types.h, which includes it.
#pragma once

#include <cstddef>

#include "src/cuda/driver_types.h"

extern "C" {

// When the source may be read.
enum CUmemcpySrcAccessOrder : int {
  CU_MEMCPY_SRC_ACCESS_ORDER_INVALID = 0,
  CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 1,
  CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL = 2,
  CU_MEMCPY_SRC_ACCESS_ORDER_ANY = 3,
};
inline constexpr unsigned int CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE = 1;

struct CUmemcpyAttributes {
  CUmemcpySrcAccessOrder srcAccessOrder;
  CUmemLocation srcLocHint;
  CUmemLocation dstLocHint;
  unsigned int flags;
};
static_assert(sizeof(CUmemcpyAttributes) == 24);

enum CUmemcpy3DOperandType : int {
  CU_MEMCPY_OPERAND_TYPE_POINTER = 1,
  CU_MEMCPY_OPERAND_TYPE_ARRAY = 2,
};

struct CUoffset3D {
  size_t x;
  size_t y;
  size_t z;
};

struct CUextent3D {
  size_t width;
  size_t height;
  size_t depth;
};

struct CUmemcpy3DOperand {
  CUmemcpy3DOperandType type;
  union {
    struct {
      CUdeviceptr ptr;
      size_t rowLength;    // elements; zero: as wide as what is copied
      size_t layerHeight;  // rows; zero: as high as what is copied
      CUmemLocation locHint;
    } ptr;
    struct {
      CUarray array;
      CUoffset3D offset;
    } array;
  } op;
};
static_assert(sizeof(CUmemcpy3DOperand) == 40);

struct CUDA_MEMCPY3D_BATCH_OP {
  CUmemcpy3DOperand src;
  CUmemcpy3DOperand dst;
  CUextent3D extent;
  CUmemcpySrcAccessOrder srcAccessOrder;
  unsigned int flags;
};
static_assert(sizeof(CUDA_MEMCPY3D_BATCH_OP) == 112);

}  // extern "C"
