#include "src/daemon/service_manager.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "src/base/unique_fd.h"

namespace tandem::daemon {
namespace {

// A manager that listens at an abstract name or at a path.
class ServiceManagerTest : public ::testing::TestWithParam<bool> {
 protected:
  ServiceManagerTest()
      : name_((GetParam() ? "@" : ::testing::TempDir()) + "tandem-notify-" +
              std::to_string(getpid())) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name_.data(), name_.size());
    if (GetParam()) address.sun_path[0] = '\0';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size());
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
    setenv("NOTIFY_SOCKET", name_.c_str(), 1);
  }
  ~ServiceManagerTest() override {
    unlink(name_.c_str());
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"}) unsetenv(name);
  }
  std::string Told() {
    std::array<char, 64> text;
    const ssize_t n = recv(fd_.get(), text.data(), text.size(), MSG_DONTWAIT);
    return n < 0 ? "" : std::string(text.data(), static_cast<size_t>(n));
  }

  const std::string name_;
  const UniqueFd fd_{socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
};

TEST_P(ServiceManagerTest, IsToldAndItsVariablesAreNotPassedOn) {
  setenv("WATCHDOG_USEC", "3000000", 1);
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  const ServiceManager manager = ServiceManager::FromEnvironment();
  EXPECT_EQ(manager.heartbeat(), Milliseconds(1500));
  manager.Tell("READY=1");
  EXPECT_EQ(Told(), "READY=1");
  EXPECT_EQ(std::getenv("NOTIFY_SOCKET"), nullptr);
  EXPECT_EQ(std::getenv("WATCHDOG_USEC"), nullptr);
}

TEST_P(ServiceManagerTest, WithoutAWatchdogThereIsNoHeartbeat) {
  setenv("WATCHDOG_USEC", "3000000", 1);
  setenv("WATCHDOG_PID", "1", 1);  // another process's
  EXPECT_FALSE(ServiceManager::FromEnvironment().heartbeat().has_value());
  setenv("WATCHDOG_USEC", "garbage", 1);
  EXPECT_FALSE(ServiceManager::FromEnvironment().heartbeat().has_value());
  ServiceManager::FromEnvironment().Tell("READY=1");  // there is no socket any more
  EXPECT_EQ(Told(), "");
}

INSTANTIATE_TEST_SUITE_P(Names, ServiceManagerTest, ::testing::Bool());

}  // namespace
}  // namespace tandem::daemon
