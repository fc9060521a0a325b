// Site: which requests are answered, and how the answers look in HTTP.
//
// Threading: any thread.
// Invariants
// 1. No data is answered without the token, where there is one; the page's own files are.
// 2. Each answer tells browsers not to keep it, guess its type or run scripts of others.
#pragma once

#include <atomic>
#include <string>

#include "src/serve/address.h"
#include "src/serve/api.h"
#include "src/serve/http_library.h"
#include "src/serve/pages.h"
#include "src/serve/sampler.h"

namespace tandem::serve {

inline constexpr int kMostStreams = 32;  // half of the connections

struct SiteSettings {
  Address listen;
  bool loopback = true;
  std::string token;  // empty: none is needed
};

class Site {
 public:
  // `api` and `sampler` must outlive it.
  Site(Api* api, Sampler* sampler, Pages pages, SiteSettings settings);

  void Handle(const httplib::Request& request, httplib::Response& response);

 private:
  // The refusal of a request that may not be answered.
  std::optional<Answer> WhyNot(const httplib::Request& request, bool data) const;
  void Live(const httplib::Request& request, httplib::Response& response);

  Api* const api_;
  Sampler* const sampler_;
  const Pages pages_;
  const SiteSettings settings_;
  std::atomic<int> streams_ = 0;
};

}  // namespace tandem::serve
