// SharedDevice: this process's place at a software GPU that several processes use together: the
// mapped shared page, and one slot of it.
//
// A slot is owned by a kernel-held lock on one byte of the file: an open-file-description lock,
// whose description only the mapping keeps alive (the descriptor is closed at once, and the mapping
// is not inherited by children). So the lock goes exactly when this process's memory does, by
// death or exec. It does not go when the program closes all its descriptors, a forked child cannot
// keep it, and no pid is involved. (A fork by another thread within the microseconds between open
// and close would give the child a share in the lock until it execs or exits.)
//
// The first process decides the device's VRAM size and clock; when no process is left, the next one
// may choose another. A size that nothing sets is chosen once: the file keeps it. The next process
// replaces a file that is damaged or of another version, unless a process holds it.
//
// Threading: any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "softgpu/card/ledger.h"
#include "softgpu/card/shared_page.h"
#include "src/base/mutex.h"
#include "src/base/result.h"
#include "src/base/unique_fd.h"

namespace tandem::soft {

// The users whose processes may use a device. With kAll they trust each other with it: any user can
// write its file, which has the shares of VRAM and the turns. The contents of the VRAM are not in
// it.
enum class Users { kThis, kAll };

// The directory of the shared files: `configured`, else UserDirectory(). It is made. Refused unless
// only this user may write to it, or for all users only root.
Result<std::string> SharedDirectory(const std::string& configured, Users users);

// What there is to see of a device from outside.
struct DeviceUse {
  struct Process {
    uint32_t pid = 0;
    Bytes used;
    unsigned int busy_percent = 0;  // of the compute engine, over the last second
  };
  Bytes total;
  Bytes used;
  std::vector<Process> processes;
};
// Looks at the device without using it. An unused one is as big as `vram`.
Result<DeviceUse> LookAt(const std::string& directory, const std::string& name, Bytes vram,
                         VramSource source = VramSource::kSet);

class SharedDevice {
 public:
  // Joins the device, or makes it with `vram` and that clock if it is unused. Root makes one for
  // all users: no other user may write to its directory.
  static Result<std::unique_ptr<SharedDevice>> Open(const std::string& directory,
                                                    const std::string& name, Bytes vram,
                                                    bool model_clock = false,
                                                    Users users = Users::kThis,
                                                    VramSource source = VramSource::kSet);
  ~SharedDevice();  // gives the slot and what it holds back
  SharedDevice(const SharedDevice&) = delete;
  SharedDevice& operator=(const SharedDevice&) = delete;

  // Charges VRAM to this process; false if it is full, dead processes' shares already taken back.
  bool Charge(Bytes bytes);
  // REQUIRES: that much is charged.
  void Return(Bytes bytes);
  // After taking dead processes' shares back.
  Bytes Free();
  Bytes total() const { return ledger_.total(); }
  // What is charged to this process.
  Bytes Held();

  // Whether a living process has the slot; true where that cannot be told.
  bool IsHeld(int slot) const;

  SharedPage* page() const { return page_; }
  Slot& own() const { return page_->slots[slot_]; }
  int slot() const { return slot_; }

 private:
  SharedDevice(std::string path, uint64_t inode, SharedPage* page, int slot);
  void ReapDead() REQUIRES_LOCK(mutex_);
  UniqueFd OpenAgain() const;

  const std::string path_;
  const uint64_t inode_;
  SharedPage* const page_;
  const int slot_;
  Mutex mutex_;
  Ledger ledger_;  // this slot's changes are serialised by mutex_
};

}  // namespace tandem::soft
