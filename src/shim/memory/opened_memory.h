// OpenedMemory: memory of other processes that the program has by cuIpcOpenMemHandle. It is on the
// card as long as it is open, at an address of its own, and counts as fixed here, too: it lives on
// where its maker frees it or ends.
//
// Threading: any thread; Open may wait for room on the card, Close for work under way. Other calls
// wait for neither, unless they open the same piece.
// Invariants
// 1. A piece of memory is mapped once, by one context, however many handles of it are open. One
//    thread at a time maps or unmaps it (`changing`).
// 2. A mapped piece counts, and goes back once it is unmapped. A piece that only waits for room to
//    be mapped keeps no memory alive.
#pragma once

#include <map>
#include <optional>

#include "src/base/mutex.h"
#include "src/base/unique_fd.h"
#include "src/cuda/real_driver.h"
#include "src/shim/link/ipc_handle.h"
#include "src/shim/memory/fixed_memory.h"
#include "src/shim/memory/reclaim.h"

namespace tandem::shim {

class OpenedMemory {
 public:
  struct Block {
    CUdeviceptr address = 0;
    uint64_t bytes = 0;
    CUcontext context = nullptr;
    uint64_t id = 0;  // never reused
  };

  OpenedMemory(const cuda::RealDriver* real, CUdevice device, FixedMemory* fixed, Reclaim* reclaim)
      : real_(real), device_(device), fixed_(fixed), reclaim_(reclaim) {}

  // Opens it for `context`, which is on the device `user`. REQUIRES: the handle is of memory of our
  // device and is sound.
  CUresult Open(const IpcHandle& handle, CUcontext context, CUdevice user, CUdeviceptr* pointer)
      EXCLUDES_LOCK(mutex_);
  // Waits for the context's work. Nothing if no block of ours begins there.
  std::optional<CUresult> Close(CUdeviceptr pointer) EXCLUDES_LOCK(mutex_);
  // Before the driver destroys the context: closes what it has open.
  void ContextEnds(CUcontext context) EXCLUDES_LOCK(mutex_);
  // The block around `pointer`.
  std::optional<Block> Find(CUdeviceptr pointer) const EXCLUDES_LOCK(mutex_);

 private:
  struct Piece {
    CUdeviceptr address = 0;
    uint64_t bytes = 0;
    CUcontext context = nullptr;
    int opened = 0;
    bool changing = true;   // being mapped or unmapped
    bool orphaned = false;  // its context has ended meanwhile
  };
  struct Opened {
    Block block;
    OfferToken token;
    int times = 0;
  };

  // Opens what is mapped already. Nothing: the caller has to map it, and to say how that went.
  std::optional<CUresult> OpenAgain(const IpcHandle& handle, CUcontext context,
                                    CUdeviceptr* pointer) EXCLUDES_LOCK(mutex_);
  CUresult Mapped(const IpcHandle& handle, CUdeviceptr address, CUdeviceptr* pointer)
      EXCLUDES_LOCK(mutex_);
  void Forget(const OfferToken& token) EXCLUDES_LOCK(mutex_);
  CUdeviceptr AddBlock(const IpcHandle& handle, Piece* piece) REQUIRES_LOCK(mutex_);
  // CUDA_ERROR_NOT_READY: there is no daemon.
  CUresult Fetch(const IpcHandle& handle, UniqueFd* memory);
  CUresult FetchCounted(const IpcHandle& handle, UniqueFd* memory);
  CUresult MapPiece(const IpcHandle& handle, CUdevice user, CUdeviceptr* address);
  CUresult MapAt(CUdeviceptr address, uint64_t bytes, CUdevice user,
                 CUmemGenericAllocationHandle memory);
  void Unmap(const Piece& piece);
  CUresult Synchronize(CUcontext context);

  const cuda::RealDriver* const real_;
  const CUdevice device_;
  FixedMemory* const fixed_;
  Reclaim* const reclaim_;
  mutable Mutex mutex_;
  CondVar changed_;  // a piece, which is mapped or gone now
  std::map<OfferToken, Piece> pieces_ GUARDED_BY(mutex_);
  std::map<CUdeviceptr, Opened> opened_ GUARDED_BY(mutex_);
  uint64_t next_id_ GUARDED_BY(mutex_) = uint64_t{1} << 50;
};

}  // namespace tandem::shim
