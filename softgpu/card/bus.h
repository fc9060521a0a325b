// Bus: the bandwidth between host and device, one budget per direction, shared by all processes.
//
// A direction is free again at an instant kept in the shared page. A copy reserves bus time piece
// by piece, by compare-and-swap, and may call a piece done when its time is over. Pieces are about
// a millisecond at most, so that copies at the same time share the bus evenly and a process that
// stops or dies takes no more than a piece with it.
// By the model clock the device's timeline is reserved instead (DeviceClock).
//
// Threading: any thread, any process. Never waits: waiting is the caller's.
#pragma once

#include "softgpu/card/shared_page.h"
#include "src/base/bytes.h"
#include "src/base/time.h"

namespace tandem::soft {

enum class Direction { kToDevice = 0, kToHost = 1 };
SharedEngine EngineOf(Direction direction);

class Bus {
 public:
  Bus(SharedPage* page, uint64_t bytes_per_second)
      : page_(page), bytes_per_second_(bytes_per_second) {}

  // The same bus, for copies that go at another rate.
  Bus At(uint64_t bytes_per_second) const { return Bus(page_, bytes_per_second); }

  // The bus of another card. REQUIRES: no copy is under way.
  void Use(SharedPage* page) { page_ = page; }

  // What to copy at a time.
  Bytes piece() const;

  // How long they take on an idle bus.
  Duration Time(Bytes bytes) const;

  // Reserves the time that `bytes` take, from `now` on or as soon as the bus is free; gives its
  // end. A copy passes the end of its last piece as `previous`, so that waking up late from it
  // costs no bandwidth; but it catches up by no more than twice the time of this piece, so that one
  // that was stopped does not find the bus free of charge for as long as it was away.
  Instant Reserve(Direction direction, Bytes bytes, Instant now, Instant previous);

 private:
  SharedPage* page_;
  const uint64_t bytes_per_second_;
};

}  // namespace tandem::soft
