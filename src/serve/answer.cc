#include "src/serve/answer.h"

#include <nlohmann/json.hpp>

#include "src/base/json.h"
#include "src/base/text.h"

namespace tandem::serve {
namespace {

int StatusOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
      return 400;
    case ErrorCode::kRefused:
      return 403;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kUnavailable:
      return 503;
    default:
      return 500;
  }
}

}  // namespace

Answer ErrorAnswer(int status, const std::string& message) {
  Answer answer;
  answer.status = status;
  answer.body = AsciiJson({{"error", EscapeText(message)}});
  return answer;
}

Answer ErrorAnswer(const Error& error) {
  return ErrorAnswer(StatusOf(error.code), error.message);
}

}  // namespace tandem::serve
