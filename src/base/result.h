// Result<T>: a value or an Error, for every fallible call inside Tandem.
//
// Nothing here throws. Code that creates an Error words it for its reader; callers pass it on with
// TRY / ASSIGN_OR_RETURN and stay silent. A code exists only where a caller branches on it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace tandem {

enum class ErrorCode {
  kFailed,       // nothing to branch on: report and give up
  kInvalid,      // malformed input from outside
  kNotFound,     // the thing named does not exist
  kUnavailable,  // no answer; trying again later may help
  kRefused,      // the other side said no, and why
  kForbidden,    // the other side allows it to others only
  kVersion,      // the two sides speak different protocol versions
  kUnsupported,  // it can never be done here
  kInterrupted,  // the person who waited for it wants it no more
};

struct Error {
  ErrorCode code = ErrorCode::kFailed;
  std::string message;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }
  // REQUIRES: ok().
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  // REQUIRES: !ok().
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return !error_.has_value(); }
  const Error& error() const& { return *error_; }
  Error&& error() && { return std::move(*error_); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

#define TANDEM_CONCAT_(a, b) a##b
#define TANDEM_CONCAT(a, b) TANDEM_CONCAT_(a, b)

// Returns the error of `expression` from the enclosing function, if it has one.
#define TRY(expression)                                                          \
  do {                                                                           \
    auto try_result = (expression);                                              \
    if (!try_result.ok()) return ::tandem::Error(std::move(try_result).error()); \
  } while (false)

#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_(TANDEM_CONCAT(result_, __LINE__), target, expression)
#define ASSIGN_OR_RETURN_(result, target, expression)                  \
  auto result = (expression);                                          \
  if (!result.ok()) return ::tandem::Error(std::move(result).error()); \
  target = std::move(result).value()

}  // namespace tandem
