// Api: the answer to each path under /api/v1 and to /metrics, but for the stream of /api/v1/live.
//
// Threading: any thread. The answers that read or compute much are made a few at a time.
#pragma once

#include <semaphore>
#include <string>
#include <string_view>

#include "src/serve/answer.h"
#include "src/serve/query.h"
#include "src/serve/recorded.h"
#include "src/serve/sampler.h"

namespace tandem::serve {

struct ApiSettings {
  std::optional<uid_t> viewer;  // with privacy: the user whose names are shown
  std::string usual_accounts;   // where the accounts are while no daemon says so
  std::string usual_events;
};

class Api {
 public:
  // `sampler` must outlive it.
  Api(Sampler* sampler, ApiSettings settings);

  // `accept`: the header, by which the format of the metrics is chosen.
  Answer Get(const std::string& path, const Parameters& parameters, std::string_view accept);

 private:
  Answer Now(const Parameters& parameters, std::string Snapshot::*part);
  Answer Metrics(const Parameters& parameters, std::string_view accept);
  Answer Heavy(const std::string& path, const Parameters& parameters);
  Result<Records> FindRecords();

  static constexpr int kHeavyAtATime = 2;

  Sampler* const sampler_;
  const ApiSettings settings_;
  std::counting_semaphore<kHeavyAtATime> heavy_{kHeavyAtATime};
};

}  // namespace tandem::serve
