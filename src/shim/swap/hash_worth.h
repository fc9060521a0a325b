// HashWorth: whether it pays to look, by a hash, whether a chunk that leaves was modified at all.
// It does where the saved bus time is worth more than the hash: on a card that reads its memory
// many times faster than the bus copies it nearly always; on the software GPU where its bus is
// slow.
//
// It begins with one chunk at a time, until one could be compared.
// Where it does not pay it is tried again, in the same way, once copies have taken many times as
// long as the last hash did; ever more times. What that one turns out to be counts alone: things
// may not be as they were.
//
// Threading: none of its own. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/base/bytes.h"
#include "src/base/time.h"

namespace tandem::shim {

class HashWorth {
 public:
  // After a hash in vain, none is tried for this multiple of its time.
  static constexpr int kFirstRest = 16, kLongestRest = 1024;

  // How many chunks may be hashed next, in one batch. One: to see what it costs.
  size_t Most(size_t batch) const {
    if (resting_ns_ > 0) return 0;
    return known() && !trial_ ? batch : 1;
  }

  // A batch: the bytes that could be compared with before, and those of them that were unmodified.
  void OnHashed(Bytes bytes, Duration took, Bytes compared, Bytes clean) {
    hash_ns_per_mib_ = Measured(hash_ns_per_mib_, bytes, took);
    last_hash_ns_ = took.ns;
    const bool trial = trial_;
    if (compared != Bytes()) {
      trial_ = false;
      const double share = static_cast<double>(clean.count) / static_cast<double>(compared.count);
      clean_share_ += trial ? share - clean_share_ : (share - clean_share_) / 2;
    }
    if (Weigh() && !trial && clean != Bytes()) rest_ = kFirstRest;
  }
  void OnCopied(Bytes bytes, Duration took) {
    const bool news = copy_ns_per_mib_ == 0;
    copy_ns_per_mib_ = Measured(copy_ns_per_mib_, bytes, took);
    resting_ns_ = std::max<int64_t>(resting_ns_ - took.ns, 0);
    if (news) Weigh();
  }

 private:
  static double Measured(double before, Bytes bytes, Duration took) {
    const double mib = static_cast<double>(bytes.count) / (1 << 20);
    // What took no time by the clock took some.
    const double now = static_cast<double>(std::max<int64_t>(took.ns, 1)) / std::max(mib, 1e-3);
    return before == 0 ? now : before + (now - before) / 4;
  }

  bool known() const { return hash_ns_per_mib_ > 0 && copy_ns_per_mib_ > 0; }

  bool Weigh() {
    if (!known() || clean_share_ * copy_ns_per_mib_ > hash_ns_per_mib_) return true;
    resting_ns_ = std::max<int64_t>(last_hash_ns_, 1) * rest_;
    rest_ = std::min(2 * rest_, kLongestRest);
    trial_ = true;
    return false;
  }

  double hash_ns_per_mib_ = 0;  // 0: never measured
  double copy_ns_per_mib_ = 0;
  double clean_share_ = 1;  // as far as it is known
  int64_t last_hash_ns_ = 0;
  int64_t resting_ns_ = 0;  // of copies, until the next trial
  int rest_ = kFirstRest;   // after the next failure
  bool trial_ = true;       // until something has been compared
};

}  // namespace tandem::shim
