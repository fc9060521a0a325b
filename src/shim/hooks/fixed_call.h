// MakeFixed and EndFixed: around calls by which the driver makes, and gives back, memory that
// cannot be swapped. Room is made for it before the driver takes it.
#pragma once

#include <optional>

#include "src/shim/driver/capture_mode.h"
#include "src/shim/program/process.h"

namespace tandem::shim {

inline const void* FixedKey(CUdeviceptr pointer) {
  return reinterpret_cast<const void*>(pointer);
}
inline const void* FixedKey(const void* handle) {
  return handle;
}

// `create` makes *object in the current context, and takes about `bytes` for it; none: what it
// takes is not known, or the driver will refuse. `kind`: of what else it may share pages with.
// CUDA_ERROR_OUT_OF_MEMORY where there is no room.
template <typename Object, typename Create>
CUresult MakeFixed(FixedMemory::Kind kind, Bytes bytes, const Object* object, Create create) {
  CUcontext context = nullptr;
  Guest* const guest = GuestOfCurrentContext(&context);
  if (guest == nullptr || bytes == Bytes()) return create();
  bool broken = false;
  {
    const RelaxedCapture relaxed(&Real());  // whether a capture forbids the call the driver says
    broken = guest->Health(context) != CUDA_SUCCESS;
  }
  if (broken) return create();  // says so
  const FixedMemory::Piece piece{context, bytes, kind};
  if (!guest->MakeRoom(piece)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = create();
  if (result == CUDA_SUCCESS) {
    guest->fixed().Put(FixedKey(*object), piece);
  } else {
    guest->fixed().GiveBack(piece);
  }
  return result;
}

// `end` gives back what MakeFixed made; or something else, of which nothing is known.
template <typename Object, typename End>
CUresult EndFixed(Object object, End end) {
  struct Taken {
    Guest* guest;
    FixedMemory::Piece piece;
  };
  const std::optional<Taken> taken = AskGuests([&](Guest* guest) -> std::optional<Taken> {
    const FixedMemory::Piece piece = guest->fixed().Take(FixedKey(object));
    if (piece.bytes == Bytes()) return std::nullopt;
    return Taken{guest, piece};
  });
  const CUresult result = end();
  if (!taken.has_value()) return result;
  if (result == CUDA_SUCCESS) {
    taken->guest->fixed().GiveBack(taken->piece);
  } else {
    taken->guest->fixed().Put(FixedKey(object), taken->piece);
  }
  return result;
}

}  // namespace tandem::shim
