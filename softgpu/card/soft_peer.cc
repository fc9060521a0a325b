// A process beside the test's own, to be stopped and killed. Reads commands, one per line, and
// answers each with a line:
//
//   become UID                  "become"
//   open DIRECTORY NAME BYTES   "total BYTES" or an error
//   open-for-all DIRECTORY NAME BYTES   the same, of a device for all users
//   charge BYTES                "yes" or "no"
//   free                        "free BYTES"
//   close-all                   "closed": every descriptor but the standard ones
//   fork                        "forked": a child that does nothing and ends when the commands do
//   contend                     no answer: uses the engine until the process ends, and says
//                               "turn NS" for each piece of work done with it, begun at that
//                               monotonic time
#include <poll.h>
#include <unistd.h>

#include <iostream>
#include <string>

#include "softgpu/card/compute_turn.h"
#include "softgpu/card/shared_device.h"

namespace tandem::soft {
namespace {

void Contend(SharedDevice& device) {
  ComputeTurn turn(device.page(), device.slot());
  for (;;) {
    turn.Acquire();
    std::cout << "turn " << MonotonicNow().ns << std::endl;
    bool yield = false;
    for (int step = 0; step < 100000 && !yield; ++step) yield = turn.ShouldYield();
    if (yield) turn.Release();
  }
}

void Fork() {
  if (fork() == 0) {
    pollfd commands = {STDIN_FILENO, 0, 0};
    poll(&commands, 1, -1);  // until their writer closes the pipe
    _exit(0);
  }
}

int Main() {
  std::unique_ptr<SharedDevice> device;
  std::string command;
  while (std::cin >> command) {
    if (command == "become") {
      uid_t uid = 0;
      std::cin >> uid;
      std::cout << (setresuid(uid, uid, uid) == 0 ? "become" : "refused") << std::endl;
    } else if (command == "open" || command == "open-for-all") {
      std::string directory, name;
      uint64_t bytes = 0;
      std::cin >> directory >> name >> bytes;
      const Users users = command == "open" ? Users::kThis : Users::kAll;
      auto opened = SharedDevice::Open(directory, name, Bytes(bytes), false, users);
      if (!opened.ok()) {
        std::cout << opened.error().message << std::endl;
        continue;
      }
      device = std::move(opened).value();
      std::cout << "total " << device->total().count << std::endl;
    } else if (command == "charge") {
      uint64_t bytes = 0;
      std::cin >> bytes;
      std::cout << (device->Charge(Bytes(bytes)) ? "yes" : "no") << std::endl;
    } else if (command == "free") {
      std::cout << "free " << device->Free().count << std::endl;
    } else if (command == "close-all") {
      closefrom(STDERR_FILENO + 1);
      std::cout << "closed" << std::endl;
    } else if (command == "fork") {
      Fork();
      std::cout << "forked" << std::endl;
    } else if (command == "contend") {
      Contend(*device);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tandem::soft

int main() {
  return tandem::soft::Main();
}
