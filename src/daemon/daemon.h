// tandemd: everything main does.
#pragma once

namespace tandem::daemon {

int Main(int argc, char** argv);

}  // namespace tandem::daemon
