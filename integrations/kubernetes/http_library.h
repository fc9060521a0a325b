// cpp-httplib, as Debian builds it; its macros are in this folder's CMakeLists.txt.
#pragma once

// Its classes are in a shared library, although ours are hidden.
#pragma GCC visibility push(default)
#include <httplib.h>
#pragma GCC visibility pop
