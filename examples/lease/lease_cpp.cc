// lease_cpp: the C++ form of lease.c. It waits for a GPU for at most five seconds.
//
//   c++ -std=c++17 -Iinclude lease_cpp.cc -ldl -o lease_cpp && tandem run ./lease_cpp
#include <chrono>
#include <iostream>
#include <tandem/tandem.hpp>

int main() {
  tandem::LeaseOptions options;
  options.wait = std::chrono::seconds(5);
  options.expected = std::chrono::milliseconds(100);
  options.on_wait = [](const tandem_wait& wait) {
    std::cerr << "waited for " << wait.waited_ms << " ms\n";
    return true;
  };
  const tandem::Lease lease(options);
  if (!lease) {
    std::cerr << "lease_cpp: " << lease.why() << '\n';
    return 1;
  }
  tandem_state state{};
  state.size = sizeof(state);
  if (lease.shared() && tandem_get_state(options.device, &state) == TANDEM_OK) {
    std::cout << "holds the GPU: " << state.holds << ", may have " << (state.limit_bytes >> 20)
              << " MiB of memory\n";
  } else {
    std::cout << "not under Tandem\n";
  }
}
