#include "src/daemon/memfd_pages.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "src/base/unique_fd.h"

namespace tandem::daemon {
namespace {

class Mapping {
 public:
  explicit Mapping(void* address) : address_(address) {}
  Mapping(Mapping&& other) noexcept : address_(std::exchange(other.address_, nullptr)) {}
  ~Mapping() {
    if (address_ != nullptr) munmap(address_, wire::kPageBytes);
  }
  void* get() const { return address_; }

 private:
  void* address_;
};

struct Page {
  UniqueFd fd;
  Mapping mapping;
};

Error System(const char* what) {
  return Error{ErrorCode::kFailed, std::string(what) + ": " + std::strerror(errno)};
}

Result<Page> MakePage(const char* name, int protection, int seals) {
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ftruncate(fd.get(), wire::kPageBytes) != 0) return System("memfd");
  void* address = mmap(nullptr, wire::kPageBytes, protection, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return System("mmap");
  Mapping mapping(address);
  if (fcntl(fd.get(), F_ADD_SEALS, seals) != 0) return System("sealing a memfd");
  return Page{std::move(fd), std::move(mapping)};
}

class MemfdPages : public service::SessionPages {
 public:
  MemfdPages(Page decisions, Page reports)
      : decisions_(std::move(decisions)),
        reports_(std::move(reports)),
        decisions_page_(new (decisions_.mapping.get()) wire::DecisionsPage{}),
        reports_page_(new (reports_.mapping.get()) wire::ReportsPage{}) {
    decisions_page_->magic = wire::kDecisionsMagic;
    reports_page_->magic = wire::kReportsMagic;
  }

  wire::DecisionsPage& decisions() override { return *decisions_page_; }
  const wire::ReportsPage& reports() const override { return *reports_page_; }
  std::vector<int> fds() const override { return {decisions_.fd.get(), reports_.fd.get()}; }

 private:
  Page decisions_;
  Page reports_;
  wire::DecisionsPage* decisions_page_;
  wire::ReportsPage* reports_page_;
};

}  // namespace

Result<std::unique_ptr<service::SessionPages>> MemfdPageMaker::Make() {
  constexpr int kSize = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  // After our own writable mapping exists: it stays writable, and no other process can make one.
  ASSIGN_OR_RETURN(Page decisions, MakePage("tandem-decisions", PROT_READ | PROT_WRITE,
                                            kSize | F_SEAL_FUTURE_WRITE));
  ASSIGN_OR_RETURN(Page reports, MakePage("tandem-reports", PROT_READ | PROT_WRITE, kSize));
  return std::unique_ptr<service::SessionPages>(
      std::make_unique<MemfdPages>(std::move(decisions), std::move(reports)));
}

}  // namespace tandem::daemon
