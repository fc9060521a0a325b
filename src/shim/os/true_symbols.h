// The dynamic linker's own dlsym and dlvsym, which this library hides behind its own.
//
// They are read from libc's symbol table: asking dlvsym for them is no way, as a reference to
// dlvsym from in here, of whatever version, finds our own unversioned one first.
#pragma once

namespace tandem::shim {

using DlsymFunction = void* (*)(void* handle, const char* name);
using DlvsymFunction = void* (*)(void* handle, const char* name, const char* version);

// Null only if the process has no dynamic linker interface at all.
DlsymFunction TrueDlsym();
DlvsymFunction TrueDlvsym();

}  // namespace tandem::shim
