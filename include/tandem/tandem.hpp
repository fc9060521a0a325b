// tandem.hpp: the C++ form of tandem.h. C++17, header only, no exceptions of its own.
//
//   tandem::LeaseOptions options;
//   options.wait = std::chrono::minutes(5);
//   if (tandem::Lease lease(options); lease) {
//     ... CUDA calls ...
//   } else {
//     std::cerr << lease.why() << '\n';
//   }
#pragma once

#include <tandem/tandem.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace tandem {

struct LeaseOptions {
  int device = 0;                                 // CUDA ordinal, as the program sees it
  std::optional<std::chrono::milliseconds> wait;  // nothing: for as long as it takes
  uint64_t memory_bytes = 0;                      // 0: what the program has by now
  std::chrono::milliseconds expected{0};          // about how long it is needed; 0: not known
  std::string work_class;                         // empty: as the run has it
  // Called while the lease waits, on the thread that waits. False: wait no longer. It may not throw.
  std::function<bool(const tandem_wait&)> on_wait;
};

// A lease from construction to destruction. Without Tandem there is nothing to wait for: the program
// has the GPU as it is, and the lease counts as held.
class Lease {
 public:
  explicit Lease(LeaseOptions options) : options_(std::move(options)) {
    tandem_lease_options asked = TANDEM_LEASE_OPTIONS;
    asked.device = options_.device;
    asked.wait_ms = options_.wait.has_value() ? options_.wait->count() : -1;
    asked.memory_bytes = options_.memory_bytes;
    asked.expected_ms = static_cast<uint64_t>(options_.expected.count());
    asked.work_class = options_.work_class.empty() ? nullptr : options_.work_class.c_str();
    if (options_.on_wait) {
      asked.on_wait = [](void* self, const tandem_wait* wait) {
        return static_cast<Lease*>(self)->options_.on_wait(*wait) ? 0 : 1;
      };
      asked.context = this;
    }
    result_ = tandem_lease_create(&asked, &lease_);
    if (result_ == TANDEM_OK) result_ = tandem_lease_begin(lease_);
  }
  ~Lease() { tandem_lease_destroy(lease_); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // Whether the program may go on: it holds the GPU, or Tandem is not there.
  explicit operator bool() const { return result_ == TANDEM_OK || result_ == TANDEM_UNAVAILABLE; }
  bool shared() const { return result_ == TANDEM_OK; }
  tandem_result result() const { return result_; }
  const char* why() const { return tandem_result_text(result_); }

 private:
  const LeaseOptions options_;
  tandem_lease* lease_ = nullptr;
  tandem_result result_ = TANDEM_INVALID;
};

}  // namespace tandem
