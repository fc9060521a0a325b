// Echo: what passing a word to another process and back costs at the least, as a floor for what
// handing over a lease costs.
#pragma once

#include <cstdint>
#include <string>

namespace bench {

// `count` times, with a pause of `pause_ns` after each: a byte through a socket to a process that
// waits for it, one back, and then a thread of this process woken by a futex, which notes the time.
// The nanoseconds of each, separated by spaces.
std::string Echo(uint32_t count, uint64_t pause_ns);

}  // namespace bench
