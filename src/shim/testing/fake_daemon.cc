#include "src/shim/testing/fake_daemon.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "src/wire/runtime_dir.h"

namespace tandem::shim {
namespace {

constexpr Duration kLookAround = Milliseconds(2);

template <typename Page>
Page* MakePage(UniqueFd* fd, uint64_t magic) {
  fd->Reset(memfd_create("page", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(fd->get(), wire::kPageBytes), 0);
  auto* const page = static_cast<Page*>(
      mmap(nullptr, wire::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0));
  page->magic = magic;
  return page;
}

}  // namespace

FakeDaemon::FakeDaemon(Bytes card, Bytes limit, Bytes chunk)
    : card_(card), limit_(limit), chunk_(chunk) {
  char pattern[] = "/tmp/tandem-test-XXXXXX";
  directory_ = mkdtemp(pattern);
  setenv("TANDEM_RUNTIME_DIR", directory_.c_str(), 1);
  decisions_ = MakePage<wire::DecisionsPage>(&decisions_fd_, wire::kDecisionsMagic);
  reports_ = MakePage<wire::ReportsPage>(&reports_fd_, wire::kReportsMagic);
  decisions_->limit_bytes = limit.count;
  listener_.Reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = wire::SocketPath();
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(listen(listener_.get(), 4), 0);
  server_ = std::thread([this] { Serve(); });
}

FakeDaemon::~FakeDaemon() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  server_.join();
  munmap(decisions_, wire::kPageBytes);
  munmap(reports_, wire::kPageBytes);
  std::filesystem::remove_all(directory_);
}

void FakeDaemon::Welcome(const wire::Register& message) {
  total_ = Bytes(message.allocated_bytes);
  wire::Registered registered;
  registered.card_bytes = card_.count;
  registered.limit_bytes = limit_.count;
  registered.chunk_bytes = chunk_.count;
  (void)channel_.Send(registered, Seconds(5), {decisions_fd_.get(), reports_fd_.get()});
  messages_.push_back(message);
  came_.NotifyAll();
}

void FakeDaemon::Serve() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (stop_) return;
      if (hang_up_) channel_.Close();
      hang_up_ = false;
    }
    if (!channel_) {
      pollfd entry{listener_.get(), POLLIN, 0};
      if (poll(&entry, 1, 2) <= 0) continue;
      MutexLock lock(mutex_);
      channel_ = wire::Channel(UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
      if (!refuse_) continue;
      channel_.Close();
      ++refusals_;
      came_.NotifyAll();
      continue;
    }
    LetIn();
    const Result<wire::Message> message = channel_.Receive(kLookAround);
    MutexLock lock(mutex_);
    if (!message.ok()) {
      if (message.error().code != ErrorCode::kNotFound) channel_.Close();
    } else if (const auto* hello = std::get_if<wire::Register>(&*message)) {
      Welcome(*hello);
    } else if (const auto* reserve = std::get_if<wire::Reserve>(&*message)) {
      const bool grows = reserve->total_bytes > total_.count;
      const bool fits = reserve->total_bytes <= limit_.count;
      if (fits) total_ = Bytes(reserve->total_bytes);
      if (grows) (void)channel_.Send(wire::Reserved{reserve->sequence, fits});
    } else if (std::holds_alternative<wire::ContextWanted>(*message)) {
      (void)channel_.Send(wire::ContextReserved{1});
    } else if (const auto* restored = std::get_if<wire::Restored>(&*message)) {
      restored_.push_back(*restored);
    } else if (!AnswerFixed(*message)) {
      messages_.push_back(*message);
      came_.NotifyAll();
    }
  }
}

void FakeDaemon::LetIn() {
  pollfd entry{listener_.get(), POLLIN, 0};
  if (poll(&entry, 1, 0) <= 0) return;
  wire::Channel channel(UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  const Result<wire::Message> message = channel.Receive(Seconds(5));
  if (!message.ok()) return;
  MutexLock lock(mutex_);
  if (const auto* hello = std::get_if<wire::Register>(&*message)) {
    channel_ = std::move(channel);
    Welcome(*hello);
  } else {
    AnswerOffer(channel, *message);
  }
}

void FakeDaemon::AnswerOffer(wire::Channel& channel, const wire::Message& message) {
  if (const auto* offer = std::get_if<wire::Offer>(&message)) {
    std::vector<UniqueFd> fds = channel.TakeFds();
    EXPECT_EQ(fds.size(), 1u);
    if (turn_away_ > 0) {
      --turn_away_;
      if (!why_.has_value()) return;
      (void)channel.Send(wire::Refused{wire::kVersion, static_cast<uint16_t>(*why_), "no"});
      return;
    }
    offers_[{offer->token_high, offer->token_low}] = std::move(fds[0]);
    ++offered_;
    (void)channel.Send(wire::Offered{});
  } else if (const auto* fetch = std::get_if<wire::Fetch>(&message)) {
    const auto found = offers_.find({fetch->token_high, fetch->token_low});
    if (found == offers_.end()) {
      (void)channel.Send(wire::Refused{});
    } else {
      (void)channel.Send(wire::Fetched{}, Seconds(5), {found->second.get()});
    }
  }
}

bool FakeDaemon::AnswerFixed(const wire::Message& message) {
  if (!most_fixed_.has_value()) return false;
  if (const auto* wanted = std::get_if<wire::FixedWanted>(&message)) {
    const bool granted = fixed_ + Bytes(wanted->bytes) <= *most_fixed_;
    if (granted) fixed_ += Bytes(wanted->bytes);
    (void)channel_.Send(wire::FixedReserved{wanted->sequence, granted});
  } else if (const auto* gone = std::get_if<wire::FixedGone>(&message)) {
    EXPECT_LE(Bytes(gone->bytes), fixed_);
    fixed_ -= Bytes(gone->bytes);
  } else {
    return false;
  }
  came_.NotifyAll();
  return true;
}

void FakeDaemon::GrantFixed(Bytes most) {
  MutexLock lock(mutex_);
  most_fixed_ = most;
}

void FakeDaemon::AwaitFixed(Bytes bytes) {
  MutexLock lock(mutex_);
  while (fixed_ != bytes) {
    if (!came_.WaitFor(mutex_, Seconds(20)) && fixed_ != bytes) {
      ADD_FAILURE() << "it has " << FormatBytes(fixed_);
      return;
    }
  }
}

void FakeDaemon::Send(const wire::Message& message) {
  MutexLock lock(mutex_);
  EXPECT_TRUE(channel_.Send(message).ok());
}

void FakeDaemon::Contend() {
  decisions().contended = 1;
  Send(wire::Contended{});
}

void FakeDaemon::HangUp() {
  MutexLock lock(mutex_);
  hang_up_ = true;
}

void FakeDaemon::Refuse(bool refuse) {
  MutexLock lock(mutex_);
  refuse_ = refuse;
}

void FakeDaemon::AwaitRefusal() {
  MutexLock lock(mutex_);
  const int before = refusals_;
  while (refusals_ == before) {
    if (!came_.WaitFor(mutex_, Seconds(20)) && refusals_ == before) {
      ADD_FAILURE() << "nobody came";
      return;
    }
  }
}

std::vector<wire::Restored> FakeDaemon::TakeRestored() {
  MutexLock lock(mutex_);
  return std::exchange(restored_, {});
}

wire::Message FakeDaemon::Next() {
  MutexLock lock(mutex_);
  while (messages_.empty()) {
    if (!came_.WaitFor(mutex_, Seconds(20)) && messages_.empty()) {
      ADD_FAILURE() << "no message came";
      return wire::Query();
    }
  }
  wire::Message message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

}  // namespace tandem::shim
