// cpp-httplib, as Debian builds it: the macros with which its shared library was compiled are in
// this folder's CMakeLists.txt, since the layout of its classes depends on them.
#pragma once

// Its classes are in a shared library, although ours are hidden.
#pragma GCC visibility push(default)
#include <httplib.h>
#pragma GCC visibility pop
