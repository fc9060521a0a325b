#include "src/cli/history_file.h"

#include "src/cli/daemon.h"
#include "src/cli/fields.h"

namespace tandem::cli {

Result<std::string> HistoryFile(const char* field, const std::string& usual, const char* option) {
  const Result<std::string> answer = Query("status");
  if (!answer.ok()) {
    const ErrorCode code = answer.error().code;
    if (code == ErrorCode::kNotFound || code == ErrorCode::kUnavailable) return usual;
    return answer;
  }
  ASSIGN_OR_RETURN(const nlohmann::json status, Parse(*answer));
  const std::string file = RawText(status, field);
  if (!file.empty()) return file;
  return Error{ErrorCode::kNotFound,
               std::string("the daemon writes none; start it without ") + option + " none"};
}

}  // namespace tandem::cli
