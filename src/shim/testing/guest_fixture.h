// GuestTest: a guest and its agent between a double of the driver and a double of the daemon.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "src/shim/program/guest.h"
#include "src/shim/testing/fake_daemon.h"
#include "src/shim/testing/fake_driver.h"
#include "src/shim/testing/submit.h"

namespace tandem::shim {

inline constexpr Bytes kLimit = MiB(48);

class GuestTest : public testing::Test {
 protected:
  GuestTest()
      : daemon_(kCard, kLimit, kChunk),
        driver_(kCard.count),
        gate_(
            [](void* guest) {
              Guest* const open = *static_cast<Guest**>(guest);
              if (open != nullptr) open->Wake();
            },
            &for_gate_),
        tracker_(&driver_.table()) {
    gate_.Open();
    auto opened =
        Guest::Open(&driver_.table(), &gate_, &tracker_, 0, Identity{"test", 5, "GPU-0", "me"});
    EXPECT_TRUE(opened.ok());
    guest_ = std::move(*opened);
    for_gate_ = guest_.get();
    const auto hello = daemon_.Expect<wire::Register>();
    EXPECT_EQ(hello.run, 5u);
    EXPECT_EQ(hello.program, "me");
    EXPECT_TRUE(guest_->WaitForContext());
    guest_->ContextMade(driver_.context());
  }
  ~GuestTest() override {
    gate_.Open();
    guest_.reset();
  }

  CUdeviceptr Allocate(Bytes bytes, CUcontext context) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(guest_->Allocate(bytes.count, context, &pointer), CUDA_SUCCESS);
    return pointer;
  }
  CUdeviceptr Allocate(Bytes bytes) { return Allocate(bytes, driver_.context()); }
  // A call that submits work, `inside` being what the work does.
  template <typename Function>
  void Submit(Function inside) {
    SubmitThrough(gate_, tracker_, inside);
  }
  // The same by a thread that will have to wait for the lease.
  template <typename Function>
  std::thread SubmitLater(Function inside) {
    return std::thread([this, inside] { Submit(inside); });
  }
  // Allocates and gets a first lease for it.
  CUdeviceptr RunWith(Bytes bytes, uint64_t epoch) {
    return RunWith(bytes, epoch, driver_.context());
  }
  CUdeviceptr RunWith(Bytes bytes, uint64_t epoch, CUcontext context) {
    const CUdeviceptr pointer = Allocate(bytes, context);
    std::thread work =
        SubmitLater([=] { std::memset(reinterpret_cast<void*>(pointer), 0x5a, bytes.count); });
    EXPECT_EQ(daemon_.Expect<wire::Ready>().need_bytes, bytes.count);
    daemon_.Send(wire::Grant{epoch, bytes.count, 1000});
    EXPECT_EQ(daemon_.Expect<wire::Running>().epoch, epoch);
    work.join();
    return pointer;
  }

  FakeDaemon daemon_;
  FakeDriver driver_;
  Guest* for_gate_ = nullptr;
  Gate gate_;
  WorkTracker tracker_;
  std::unique_ptr<Guest> guest_;
};

inline bool AllBytes(CUdeviceptr pointer, Bytes bytes, unsigned char value) {
  const auto* const begin = reinterpret_cast<const unsigned char*>(pointer);
  return std::all_of(begin, begin + bytes.count, [=](unsigned char byte) { return byte == value; });
}

}  // namespace tandem::shim
