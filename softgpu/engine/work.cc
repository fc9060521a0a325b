#include "softgpu/engine/work.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "softgpu/card/busy_time.h"
#include "softgpu/engine/scheduler.h"
#include "src/base/time.h"

namespace tandem::soft {
namespace {

// Bytes between two looks at whether another process wants the device or its memory.
constexpr uint64_t kPiece = uint64_t{1} << 20;

// By the model clock: what is done between two looks at the timeline, and how far work may run
// ahead of it, so that it is done when its time comes.
constexpr Duration kModelPiece = Milliseconds(1);
constexpr Duration kAhead = Milliseconds(4);
// By the real clock: of a kernel, between two looks at how long it has run.
constexpr Duration kRealPiece = Milliseconds(20);

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

// Device memory that is about to be written is mapped in one go, not page by page in faults: those
// would take longer than the copy. Where that fails, or the host does not know how, they do it.
void BringIn(const AddressSpace& space, uint64_t address, uint64_t bytes) {
  constexpr uint64_t kWorthIt = 64 << 10;
  if (bytes < kWorthIt || !space.Contains(address)) return;
  madvise(reinterpret_cast<void*>(address), bytes, MADV_POPULATE_WRITE);
}

// A page fault costs ten times as much on one host as on another. In its scope each page fault of
// this thread takes longer by this time, so that one host can show what another would.
class SlowFaults {
 public:
  explicit SlowFaults(Duration each) : each_(each), before_(Count()) {}
  ~SlowFaults() {
    const Instant end = MonotonicNow() + Duration((Count() - before_) * each_.ns);
    while (MonotonicNow() < end) {  // a fault keeps the processor, too
    }
  }
  SlowFaults(const SlowFaults&) = delete;
  SlowFaults& operator=(const SlowFaults&) = delete;

 private:
  int64_t Count() const {
    rusage used = {};
    if (each_ != Duration()) getrusage(RUSAGE_THREAD, &used);
    return used.ru_minflt;
  }

  const Duration each_;
  const int64_t before_;
};

// The bytes [begin, begin + length) of a copy, counted as if its rows lay end to end.
bool CopyPiece(const Hardware& hardware, const Copy& copy, uint64_t begin, uint64_t length) {
  AddressSpace& space = *hardware.space;
  const MapLock::Reader reader(space.map_lock());
  const SlowFaults slow(hardware.page_fault);
  while (length > 0) {
    const uint64_t slice = begin / copy.width / copy.height;
    const uint64_t row = begin / copy.width % copy.height;
    const uint64_t column = begin % copy.width;
    const uint64_t count = std::min(copy.width - column, length);
    const auto at = [&](const Rows& rows) {
      return rows.address + slice * rows.slice + row * rows.pitch + column;
    };
    const uint64_t to = at(copy.to), from = at(copy.from);
    if (!MayTouch(space, to, count, Access::kReadWrite)) return false;
    if (!MayTouch(space, from, count, Access::kRead)) return false;
    BringIn(space, to, count);
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), count);
    begin += count;
    length -= count;
  }
  return true;
}

// Copies in pieces of at most `piece` bytes; `around(length, copy_it)` is called for each.
template <typename Around>
CUresult CopyInPieces(const Hardware& hardware, const Copy& copy, uint64_t piece, Around around) {
  const uint64_t total = copy.width * copy.height * copy.depth;
  for (uint64_t begin = 0; begin < total; begin += piece) {
    const uint64_t length = std::min(piece, total - begin);
    const auto copy_it = [&] { return CopyPiece(hardware, copy, begin, length); };
    if (!around(length, copy_it)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  return CUDA_SUCCESS;
}

// A piece of work on an engine that processes use in turns. Keeps the engine while no other process
// is due, and takes it again when it was handed on. By the model clock it also waits until the
// work's time has almost come.
class Piece {
 public:
  Piece(const Hardware& hardware, SharedEngine engine, ComputeTurn& turn)
      : hardware_(hardware), engine_(engine), turn_(turn) {
    turn_.Take();
    if (model()) {
      start_ = hardware_.clock->FreeAt(engine_, TaskTime::cursor());
      hardware_.clock->SleepUntil(start_ - kAhead);
    }
    began_ = MonotonicNow();
  }

  bool model() const { return hardware_.clock->model(); }
  Instant start() const { return start_; }  // on the model's timeline
  Instant began() const { return began_; }  // by the machine's clock

  // The work is done. What it took: its worth, by the model clock.
  Duration End(Duration worth) {
    const Instant now = MonotonicNow();
    const Duration took = model() ? worth : now - began_;
    if (engine_ == SharedEngine::kCompute) AddBusyTime(*hardware_.slot, took, now);
    if (model()) {
      TaskTime::cursor() = hardware_.clock->Reserve(engine_, start_, worth);
      hardware_.clock->Done(TaskTime::cursor());
      turn_.Spend(worth);
    }
    return took;
  }

 private:
  const Hardware& hardware_;
  const SharedEngine engine_;
  ComputeTurn& turn_;
  Instant start_, began_;
};

// By the model clock work has been done before its time: its end has to be waited for.
CUresult AtItsTime(const Hardware& hardware, CUresult result) {
  if (hardware.clock->model()) hardware.clock->SleepUntil(TaskTime::cursor());
  return result;
}

Duration DeviceTime(uint64_t bytes) {
  return Duration(static_cast<int64_t>(bytes * 1'000'000'000 / kModelDeviceBytesPerSecond));
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

// What the kernel printed, and why it did not come to its end.
void Tell(ptx::Execution& execution, const std::string& name, ptx::Stop stop) {
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
}

}  // namespace

CUresult CopyOverBus(const Hardware& hardware, Direction direction, const Copy& copy) {
  Bus bus = hardware.bus->At(hardware.faults->CopyBegins());
  const uint64_t piece_bytes = bus.piece().count;
  if (hardware.clock->model()) {
    ComputeTurn& turn = hardware.bus_turns[static_cast<int>(direction)];
    const auto in_turn = [&](uint64_t length, auto copy_it) {
      Piece piece(hardware, EngineOf(direction), turn);
      const bool done = copy_it();
      piece.End(bus.Time(Bytes(length)));
      return done;
    };
    return AtItsTime(hardware, CopyInPieces(hardware, copy, piece_bytes, in_turn));
  }
  Instant end;
  const auto in_time = [&](uint64_t length, auto copy_it) {
    SleepUntil(end);
    end = bus.Reserve(direction, Bytes(length), MonotonicNow(), end);
    return copy_it();
  };
  const CUresult result = CopyInPieces(hardware, copy, piece_bytes, in_time);
  if (result == CUDA_SUCCESS) SleepUntil(end);
  return result;
}

CUresult CopyOnDevice(const Hardware& hardware, const Copy& copy) {
  const auto in_turn = [&](uint64_t length, auto copy_it) {
    Piece piece(hardware, SharedEngine::kCompute, *hardware.turn);
    const bool done = copy_it();
    piece.End(DeviceTime(length));
    return done;
  };
  return AtItsTime(hardware, CopyInPieces(hardware, copy, kPiece, in_turn));
}

CUresult CopyOnHost(const Hardware& hardware, const Copy& copy) {
  return CopyInPieces(hardware, copy, kPiece, [](uint64_t, auto copy_it) { return copy_it(); });
}

CUresult FillOnDevice(const Hardware& hardware, const Fill& fill) {
  for (uint64_t row = 0; row < fill.height; ++row) {
    for (uint64_t column = 0; column < fill.width;) {
      const uint64_t length = std::min(kPiece, fill.width - column);
      const uint64_t address = fill.to.address + row * fill.to.pitch + column;
      Piece piece(hardware, SharedEngine::kCompute, *hardware.turn);
      {
        const MapLock::Reader reader(hardware.space->map_lock());
        if (!MayTouch(*hardware.space, address, length, Access::kReadWrite)) {
          return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        const SlowFaults slow(hardware.page_fault);
        FillRow(reinterpret_cast<uint8_t*>(address), length, fill.value, fill.element_bytes);
      }
      piece.End(DeviceTime(length));
      column += length;
    }
  }
  return AtItsTime(hardware, CUDA_SUCCESS);
}

CUresult RunLaunch(const Hardware& hardware, ptx::Launch launch) {
  // Both rules count every launch.
  const bool killed = hardware.faults->Due(kKillLaunch);
  const bool corrupt = hardware.faults->Due(kEccLaunch);
  if (killed) return CUDA_ERROR_LAUNCH_FAILED;
  if (corrupt) return CUDA_ERROR_ECC_UNCORRECTABLE;
  AddressSpace& space = *hardware.space;
  const ptx::MemoryMap memory{space.base(),
                              space.size(),
                              kPageShift,
                              space.readable(hardware.device),
                              space.writable(hardware.device),
                              &space.host()};
  // A more urgent kernel that interrupts this one must not count in the same place.
  if (launch.cooperative) launch.grid_workspace += kGridWorkspaceBytes * -UrgentWork::Priority();
  const std::string name = launch.kernel->name;
  ptx::Progress progress;
  launch.progress = &progress;
  ptx::Execution execution(launch, memory, hardware.path);
  Duration used;
  for (;;) {
    Piece piece(hardware, SharedEngine::kCompute, *hardware.turn);
    progress.instructions = 0;
    progress.began_ns = piece.start().ns;
    progress.instruction_ns = piece.model() ? kModelInstructionNs : 0;
    const auto should_yield = [&] {
      if (space.map_lock().WriterWaits() || hardware.turn->ShouldYield()) return true;
      if (UrgentWork::Waits()) return true;
      return piece.model() ? progress.instructions * kModelInstructionNs >= kModelPiece.ns
                           : MonotonicNow() - piece.began() > kRealPiece;
    };
    ptx::Stop stop;
    {
      const MapLock::Reader reader(space.map_lock());
      const SlowFaults slow(hardware.page_fault);
      stop = execution.Run(should_yield);
    }
    used = used + piece.End(Duration(progress.instructions * kModelInstructionNs));
    if (stop == ptx::Stop::kYielded) {
      if (UrgentWork::Waits()) UrgentWork::Do();
      if (hardware.watchdog == Duration() || used < hardware.watchdog) continue;
      std::fprintf(stderr, "tandem software GPU: kernel %s: ended by the watchdog\n", name.c_str());
      return AtItsTime(hardware, CUDA_ERROR_LAUNCH_TIMEOUT);
    }
    Tell(execution, name, stop);
    return AtItsTime(hardware, ResultOf(stop));
  }
}

}  // namespace tandem::soft
