#include "src/history/state_dir.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "src/wire/runtime_dir.h"

namespace tandem::history {
namespace {

TEST(StateDirTest, TheEnvironmentSaysWhere) {
  setenv("TANDEM_STATE_DIR", "/s", 1);
  setenv("TANDEM_RUNTIME_DIR", "/r", 1);
  setenv("XDG_STATE_HOME", "/x", 1);
  setenv("HOME", "/h", 1);
  EXPECT_EQ(StateDir(), "/s");
  unsetenv("TANDEM_STATE_DIR");
  EXPECT_EQ(StateDir(), "/r/history");
  unsetenv("TANDEM_RUNTIME_DIR");
  if (wire::IsEverybodys(wire::RuntimeDir())) {
    EXPECT_EQ(StateDir(), "/var/lib/tandem");
    return;
  }
  EXPECT_EQ(StateDir(), "/x/tandem");
  unsetenv("XDG_STATE_HOME");
  EXPECT_EQ(StateDir(), "/h/.local/state/tandem");
}

}  // namespace
}  // namespace tandem::history
