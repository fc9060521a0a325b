#include "src/softgpu/work.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "src/base/time.h"

namespace tandem::soft {
namespace {

// Bytes between two looks at whether somebody else wants the device or its memory.
constexpr uint64_t kPiece = uint64_t{1} << 20;

// Waits end this much early: about what a timer is late. The bus's reservations, not the waits,
// hold the rate.
constexpr Duration kTimerSlack = Microseconds(50);

void SleepUntil(Instant end) {
  const int64_t ns = (end - kTimerSlack).ns;
  if (Instant(ns) <= MonotonicNow()) return;
  const timespec when = {ns / 1000000000, ns % 1000000000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr) == EINTR) {
  }
}

// Device memory must still be there; the program's own memory is its own affair.
bool MayTouch(const AddressSpace& space, uint64_t address, uint64_t bytes, Access access) {
  return !space.Contains(address) || space.Allows(address, bytes, access);
}

// The bytes [begin, begin + length) of a copy, counted as if its rows lay end to end.
bool CopyPiece(AddressSpace& space, const Copy& copy, uint64_t begin, uint64_t length) {
  const MapLock::Reader reader(space.map_lock());
  while (length > 0) {
    const uint64_t row = begin / copy.width;
    const uint64_t column = begin % copy.width;
    const uint64_t count = std::min(copy.width - column, length);
    const uint64_t to = copy.to.address + row * copy.to.pitch + column;
    const uint64_t from = copy.from.address + row * copy.from.pitch + column;
    if (!MayTouch(space, to, count, Access::kReadWrite)) return false;
    if (!MayTouch(space, from, count, Access::kRead)) return false;
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), count);
    begin += count;
    length -= count;
  }
  return true;
}

// Copies in pieces of at most `piece` bytes; `before(length)` is called before each.
template <typename Before>
CUresult CopyInPieces(AddressSpace& space, const Copy& copy, uint64_t piece, Before before) {
  const uint64_t total = copy.width * copy.height;
  for (uint64_t begin = 0; begin < total; begin += piece) {
    const uint64_t length = std::min(piece, total - begin);
    before(length);
    if (!CopyPiece(space, copy, begin, length)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  return CUDA_SUCCESS;
}

// Keeps the compute engine while nobody else is due, and takes it again when it was handed on.
void TakeTurn(ComputeTurn& turn) {
  if (turn.ShouldYield()) turn.Release();
  turn.Acquire();
}

void FillRow(uint8_t* row, uint64_t bytes, uint32_t value, uint32_t element_bytes) {
  if (element_bytes == 1) {
    std::memset(row, static_cast<int>(value & 0xff), bytes);
    return;
  }
  for (uint64_t i = 0; i + element_bytes <= bytes; i += element_bytes) {
    std::memcpy(row + i, &value, element_bytes);
  }
}

CUresult ResultOf(ptx::Stop stop) {
  switch (stop) {
    case ptx::Stop::kDone:
    case ptx::Stop::kYielded:
      return CUDA_SUCCESS;
    case ptx::Stop::kIllegalAddress:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case ptx::Stop::kMisalignedAddress:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case ptx::Stop::kTrap:
      return CUDA_ERROR_LAUNCH_FAILED;
    case ptx::Stop::kAssert:
      return CUDA_ERROR_ASSERT;
    case ptx::Stop::kInvalidAddressSpace:
      return CUDA_ERROR_INVALID_ADDRESS_SPACE;
  }
  return CUDA_ERROR_UNKNOWN;
}

}  // namespace

CUresult CopyOverBus(const Hardware& hardware, Direction direction, const Copy& copy) {
  Bus& bus = *hardware.bus;
  Instant end;
  const auto reserve = [&](uint64_t length) {
    SleepUntil(end);
    end = bus.Reserve(direction, Bytes(length), MonotonicNow(), end);
  };
  const CUresult result = CopyInPieces(*hardware.space, copy, bus.piece().count, reserve);
  if (result == CUDA_SUCCESS) SleepUntil(end);
  return result;
}

CUresult CopyOnDevice(const Hardware& hardware, const Copy& copy) {
  return CopyInPieces(*hardware.space, copy, kPiece, [&](uint64_t) { TakeTurn(*hardware.turn); });
}

CUresult CopyOnHost(const Hardware& hardware, const Copy& copy) {
  return CopyInPieces(*hardware.space, copy, kPiece, [](uint64_t) {});
}

CUresult FillOnDevice(const Hardware& hardware, const Fill& fill) {
  for (uint64_t row = 0; row < fill.height; ++row) {
    for (uint64_t column = 0; column < fill.width;) {
      const uint64_t length = std::min(kPiece, fill.width - column);
      const uint64_t address = fill.to.address + row * fill.to.pitch + column;
      TakeTurn(*hardware.turn);
      const MapLock::Reader reader(hardware.space->map_lock());
      if (!MayTouch(*hardware.space, address, length, Access::kReadWrite)) {
        return CUDA_ERROR_ILLEGAL_ADDRESS;
      }
      FillRow(reinterpret_cast<uint8_t*>(address), length, fill.value, fill.element_bytes);
      column += length;
    }
  }
  return CUDA_SUCCESS;
}

CUresult RunLaunch(const Hardware& hardware, ptx::Launch launch) {
  AddressSpace& space = *hardware.space;
  const ptx::MemoryMap memory{space.base(), space.size(), kPageShift, space.readable(),
                              space.writable()};
  const std::string name = launch.kernel->name;
  ptx::Execution execution(std::move(launch), memory, ptx::Path::kAuto);
  const auto should_yield = [&] {
    return space.map_lock().WriterWaits() || hardware.turn->ShouldYield();
  };
  for (;;) {
    TakeTurn(*hardware.turn);
    ptx::Stop stop;
    {
      const MapLock::Reader reader(space.map_lock());
      stop = execution.Run(should_yield);
    }
    if (stop == ptx::Stop::kYielded) continue;
    const std::string output = execution.TakeOutput();
    if (!output.empty()) {
      std::fwrite(output.data(), 1, output.size(), stdout);
      std::fflush(stdout);
    }
    if (stop == ptx::Stop::kAssert) {
      std::fputs(execution.assertions().c_str(), stderr);
    } else if (stop != ptx::Stop::kDone) {
      std::fprintf(stderr, "tandem software GPU: kernel %s: %s (address 0x%llx)\n", name.c_str(),
                   execution.fault().what.c_str(),
                   static_cast<unsigned long long>(execution.fault().address));
    }
    return ResultOf(stop);
  }
}

}  // namespace tandem::soft
