// Ends the process by a signal that its program handles, where the user has asked for the end.
#pragma once

namespace tandem::shim {

// The process dies of `signal` as if the program had never set a handler. Returns, and changes
// nothing, where the program ignores the signal. Nothing else of the shim ends the process.
void EndBySignal(int signal);

}  // namespace tandem::shim
