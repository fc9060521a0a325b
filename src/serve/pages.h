// Pages: the files of the page for browsers, read once into memory.
//
// Threading: any thread once read.
// Invariant: only files that were read are served; a path of a request never reaches the file
// system.
#pragma once

#include <map>
#include <string>

#include "src/serve/answer.h"

namespace tandem::serve {

class Pages {
 public:
  // The files in `directory`, such as PREFIX/share/tandem/web, and in its folder assets. Without
  // index.html: one page that says what to install.
  static Pages Read(const std::string& directory);

  // Nothing where there is no such file.
  const Answer* Find(const std::string& path) const;

 private:
  std::map<std::string, Answer> files_;
};

}  // namespace tandem::serve
