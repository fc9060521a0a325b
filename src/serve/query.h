// Query: the parameters of a request, each of which is known, there once and of bounded length.
//
// Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/base/result.h"

namespace tandem::serve {

using Parameters = std::multimap<std::string, std::string>;

class Query {
 public:
  // Error: kInvalid, with the names that there are.
  static Result<Query> Parse(const Parameters& parameters, const std::vector<std::string>& known);

  // Sets `value` where the parameter is there.
  void Read(const std::string& name, std::string* value) const;
  // A number from `least` to `most`; `usual` where it is not there.
  Result<int> Number(const std::string& name, int usual, int least, int most) const;
  bool Has(const std::string& name) const { return values_.count(name) != 0; }

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace tandem::serve
