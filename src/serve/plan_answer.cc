#include "src/serve/plan_answer.h"

#include <string>
#include <utility>
#include <vector>

#include "src/cli/plan.h"

namespace tandem::serve {
namespace {

constexpr int kMostUsers = 2000, kMostGpus = 256;

Result<cli::PlanOptions> OptionsOf(const Parameters& parameters) {
  cli::PlanOptions options;
  const std::vector<std::pair<const char*, std::string*>> texts = {
      {"burst", &options.burst},   {"edit", &options.edit}, {"pause", &options.edit},
      {"away", &options.away},     {"stay", &options.stay}, {"idle-timeout", &options.timeout},
      {"memory", &options.memory}, {"card", &options.card}, {"bus", &options.bus},
      {"bound", &options.bound},
  };
  std::vector<std::string> known = {"users", "gpus"};
  for (const auto& [name, value] : texts) known.emplace_back(name);
  ASSIGN_OR_RETURN(const Query query, Query::Parse(parameters, known));
  if (query.Has("edit") && query.Has("pause")) {
    return Error{ErrorCode::kInvalid, "pause is another name of edit; write one of them"};
  }
  for (const auto& [name, value] : texts) query.Read(name, value);
  ASSIGN_OR_RETURN(options.users, query.Number("users", 0, 1, kMostUsers));
  ASSIGN_OR_RETURN(options.gpus, query.Number("gpus", 1, 1, kMostGpus));
  if (!query.Has("users")) {
    return Error{ErrorCode::kInvalid, "users is missing; write for example ?users=10&burst=30s"};
  }
  return options;
}

}  // namespace

Answer PlanAnswer(const Parameters& parameters) {
  const Result<cli::PlanOptions> options = OptionsOf(parameters);
  if (!options.ok()) return ErrorAnswer(options.error());
  const Result<cli::Question> question = cli::Understand(*options);
  if (!question.ok()) return ErrorAnswer(400, question.error().message);
  return {200, "application/json", cli::PlanJson(cli::Answer(*question)), "", false};
}

}  // namespace tandem::serve
