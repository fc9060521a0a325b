// A program whose memory has left the card, and its reads and writes without the lease.
#pragma once

#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "src/shim/swap/unleased_access.h"
#include "src/shim/testing/guest_fixture.h"

namespace tandem::shim {

using Data = std::vector<unsigned char>;

class UnleasedAccessTest : public GuestTest {
 protected:
  UnleasedAccess& access() { return guest_->access(); }
  void TakeTheCard(uint64_t epoch, Bytes keep) {
    daemon_.Send(wire::Revoke{epoch, 1000000});
    EXPECT_EQ(daemon_.Expect<wire::Released>().epoch, epoch);
    daemon_.Send(wire::Evict{keep.count});
    while (daemon_.Expect<wire::Evicted>().resident_bytes > keep.count) {
    }
  }
  // A block full of 0x5a that has left the card.
  CUdeviceptr AllocateAway(Bytes bytes) {
    daemon_.decisions().host_share_bytes = kLimit.count;
    const CUdeviceptr pointer = RunWith(bytes, 1);
    TakeTheCard(1, Bytes());
    return pointer;
  }
  // The first message after what was served, then: nothing of it asked for the card.
  template <typename Work>
  void RunUnderLease(uint64_t epoch, Bytes need, Work work) {
    std::thread thread = SubmitLater(work);
    EXPECT_EQ(daemon_.Expect<wire::Ready>().need_bytes, need.count);
    daemon_.Send(wire::Grant{epoch, need.count, 1000});
    EXPECT_EQ(daemon_.Expect<wire::Running>().epoch, epoch);
    thread.join();
  }
  bool Holds(CUdeviceptr pointer, const Data& data) {
    return std::memcmp(reinterpret_cast<const void*>(pointer), data.data(), data.size()) == 0;
  }
};

inline Data Counted(Bytes bytes) {
  Data data(bytes.count);
  std::iota(data.begin(), data.end(), static_cast<unsigned char>(1));
  return data;
}

}  // namespace tandem::shim
