// The program tandem-serve.
#pragma once

namespace tandem::serve {

// Until SIGINT, SIGTERM or SIGHUP. The exit status.
int Main(int argc, char** argv);

}  // namespace tandem::serve
