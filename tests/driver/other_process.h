// OtherProcess: this program once more, in a new process, for one of the tests that are no tests by
// themselves (their names begin with DISABLED_). It and its parent know how far it has come.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

namespace tandem::driver_test {

// Plain data as a variable's text, and back again. Data of another size than the text fails the
// test.
std::string InHex(const void* data, size_t bytes);
void FromHex(const char* variable, void* data, size_t bytes);
template <typename T>
T Given(const char* variable) {
  T data = {};
  FromHex(variable, &data, sizeof(data));
  return data;
}

class OtherProcess {
 public:
  // Runs the test `name`, with these variables in its environment beside those of this process.
  explicit OtherProcess(const char* name, const std::map<std::string, std::string>& variables = {});
  // Whatever still runs is killed.
  ~OtherProcess();
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Waits until it tells; false if it ended without a word.
  bool Hear();
  // Waits for its end; whether it came to the end of its test, and nothing failed on the way.
  bool EndsWell();
  // Kills it; whether that, and nothing before, was its end.
  bool DiesOfAKill();

  // In the other process: that it is where its parent waits for it, and that its test is over.
  static void Tell();
  static void TellTheEnd();

 private:
  pid_t pid_ = -1;
  int from_ = -1;  // what it tells comes here
};

}  // namespace tandem::driver_test
