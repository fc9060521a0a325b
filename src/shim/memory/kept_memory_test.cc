#include "src/shim/memory/kept_memory.h"

#include "src/shim/testing/fixed_scene.h"

namespace tandem::shim {
namespace {

class KeptMemoryTest : public FixedScene {
 protected:
  void Has(Bytes reserved, Bytes used) {
    reserved_ = reserved;
    used_ = used;
  }

  Bytes reserved_, used_;
  KeptMemory kept_{&fixed_, {[this] { return reserved_; }, [this] { return used_; }}};
};

TEST_F(KeptMemoryTest, CountsWhatTheStoreHasAfterACall) {
  EXPECT_TRUE(kept_.MakeRoom(MiB(10)));
  daemon_.AwaitFixed(MiB(10));
  Has(MiB(6), MiB(5));  // less than might have been
  kept_.Recount(MiB(10));
  daemon_.AwaitFixed(MiB(6));
  EXPECT_TRUE(kept_.MakeRoom(MiB(1)));  // of what it keeps
  Has(MiB(8), MiB(6));                  // and yet it has grown
  kept_.Recount(MiB(1));
  daemon_.AwaitFixed(MiB(8));
  Has(Bytes(), Bytes());
  RecountUntil(Bytes(), [this] { kept_.Recount(); });
  EXPECT_EQ(kept_.counted(), Bytes());
}

TEST_F(KeptMemoryTest, WhatIsPromisedStaysWhileOthersSettle) {
  EXPECT_TRUE(kept_.MakeRoom(MiB(10)));
  EXPECT_TRUE(kept_.MakeRoom(MiB(20)));
  daemon_.AwaitFixed(MiB(30));
  kept_.Recount(MiB(10));  // that call failed
  daemon_.AwaitFixed(MiB(20));
  Has(MiB(20), MiB(20));
  kept_.Recount(MiB(20));
  EXPECT_EQ(kept_.counted(), MiB(20));
  daemon_.AwaitFixed(MiB(20));
}

TEST_F(KeptMemoryTest, IsRefusedWhatThereIsNoRoomFor) {
  EXPECT_TRUE(kept_.MakeRoom(MiB(60)));
  Has(MiB(60), MiB(60));
  kept_.Recount(MiB(60));
  EXPECT_FALSE(kept_.MakeRoom(MiB(5)));
  EXPECT_EQ(kept_.counted(), MiB(60));
  EXPECT_TRUE(kept_.MakeRoom(MiB(4)));
  daemon_.AwaitFixed(MiB(64));
  kept_.Recount(MiB(4));
  daemon_.AwaitFixed(MiB(60));
}

// Recount does not wait for room for memory already taken, and asks for it again.
TEST_F(KeptMemoryTest, WhatItTookWithoutLeaveCountsWhenThereIsRoom) {
  daemon_.GrantFixed(MiB(10));
  Has(MiB(20), MiB(20));
  kept_.Recount();
  kept_.Recount();
  EXPECT_EQ(kept_.counted(), Bytes());
  daemon_.GrantFixed(MiB(64));
  RecountUntil(MiB(20), [this] { kept_.Recount(); });
}

}  // namespace
}  // namespace tandem::shim
