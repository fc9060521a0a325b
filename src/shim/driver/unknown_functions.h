// Functions of a driver that is newer than this library. Those that, by their names, allocate
// memory, submit work or move bytes would do so past gate and limit: they are refused, each with a
// line at its first call. All others are passed.
//
// Threading: any thread.
#pragma once

namespace tandem::shim {

// What stands in for a function of that name, which is not known here, whatever it is called with.
// Null: it may be passed.
void* RefusalOf(const char* name);

}  // namespace tandem::shim
