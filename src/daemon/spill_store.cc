#include "src/daemon/spill_store.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "src/base/text.h"
#include "src/daemon/closing.h"
#include "src/daemon/driver_child.h"
#include "src/wire/channel.h"

namespace tandem::daemon {
namespace {

template <typename T>
std::string PacketOf(const T& head, const std::string& rest = {}) {
  return std::string(reinterpret_cast<const char*>(&head), sizeof(head)) + rest;
}

service::SpillSizes SizesIn(const std::string& text) {
  service::SpillSizes sizes;
  for (size_t at = 0; at + sizeof(SpillSize) <= text.size(); at += sizeof(SpillSize)) {
    SpillSize size;
    std::memcpy(&size, text.data() + at, sizeof(size));
    sizes[size.owner] = Bytes(size.bytes);
  }
  return sizes;
}

}  // namespace

Result<std::unique_ptr<SpillStore>> SpillStore::Open(std::string directory, Bytes limit,
                                                     std::string program) {
  std::unique_ptr<SpillStore> store(
      new SpillStore(std::move(directory), limit, std::move(program)));
  const Instant deadline = MonotonicNow() + kStartPatience;
  if (!store->Start(MonotonicNow())) return Error{ErrorCode::kFailed, store->trouble_};
  while (!store->opened_ && store->socket_) {
    const Duration left = deadline - MonotonicNow();
    pollfd entry{store->fd(), POLLIN, 0};
    const bool ready = left.ns > 0 && poll(&entry, 1, static_cast<int>(left.ns / 1000000 + 1)) > 0;
    if (!ready && left.ns <= 0) {
      return Error{ErrorCode::kFailed, "the file system of " + store->directory_ +
                                           " does not answer: end the daemon's option --spill"};
    }
    store->Take(MonotonicNow());
  }
  if (!store->socket_) return Error{ErrorCode::kFailed, store->trouble_};
  return store;
}

SpillStore::~SpillStore() {
  if (child_ > 0) kill(child_, SIGKILL);
  if (child_ > 0) waitpid(child_, nullptr, WNOHANG);
}

bool SpillStore::Start(Instant now) {
  int ends[2];
  rests_until_ = now + kRest;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  const Result<pid_t> child =
      StartDriverChild(program_, "--spill-keeper", theirs.get(), theirs.get());
  if (!child.ok()) {
    trouble_ = child.error().message;
    return false;
  }
  child_ = *child;
  socket_ = std::move(ours);
  started_ = true;
  SpillOpening opening;
  opening.limit = limit_.count;
  orders_.push_front({PacketOf(opening, directory_), SpillOrder::kOpen, 0, std::nullopt});
  SendNext(now);
  return static_cast<bool>(socket_);
}

bool SpillStore::Ask(uint64_t request, const service::SpillOwner& owner, unsigned uid, unsigned gid,
                     Instant now) {
  if (!opened_ || hangs_) return false;
  Order({SpillOrder::kMake, owner, uid, gid}, request, now);
  return true;
}

void SpillStore::End(int pid, Instant now) {
  if (opened_) Order({SpillOrder::kEnd, {pid, 0}, 0, 0}, std::nullopt, now);
}

void SpillStore::Order(const SpillOrder& order, std::optional<uint64_t> request, Instant now) {
  orders_.push_back({PacketOf(order), order.what, order.uid, request});
  SendNext(now);
}

void SpillStore::SendNext(Instant now) {
  if (asked_at_.has_value() || orders_.empty() || !socket_) return;
  const std::string& packet = orders_.front().packet;
  asked_at_ = now;
  const ssize_t n = send(socket_.get(), packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0) Lose(now, std::strerror(errno));
}

SpillStore::News SpillStore::Take(Instant now) {
  News news;
  std::string packet(kMaxSpillPacket, '\0');
  while (socket_) {
    iovec piece{packet.data(), packet.size()};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    wire::FdSpace space{};
    header.msg_control = space.bytes.data();
    header.msg_controllen = space.bytes.size();
    const ssize_t n = recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    std::vector<UniqueFd> fds = wire::DetachFds(header);
    UniqueFd file = fds.empty() ? UniqueFd() : std::move(fds.front());
    if (n < static_cast<ssize_t>(sizeof(SpillAnswer)) || !asked_at_.has_value()) {
      Lose(now, "the process that makes spill files has ended");
      break;
    }
    OnAnswer(packet.substr(0, static_cast<size_t>(n)), std::move(file), now, &news);
  }
  return news;
}

void SpillStore::OnAnswer(const std::string& packet, UniqueFd file, Instant now, News* news) {
  SpillAnswer answer;
  std::memcpy(&answer, packet.data(), sizeof(answer));
  const std::string text = packet.substr(sizeof(answer));
  const Pending order = std::move(orders_.front());
  orders_.pop_front();
  asked_at_.reset();
  available_ = Bytes(answer.available);
  files_ = answer.files;
  if (std::exchange(hangs_, false)) {
    spdlog::warn("the file system of {} answers again", EscapeText(directory_));
  }
  if (answer.failed && order.what == SpillOrder::kOpen) return Lose(now, text);
  if (answer.failed && log_rate_.Take(order.uid, now).has_value()) {
    spdlog::warn("no spill file: {}", EscapeText(text));
  }
  if (order.what == SpillOrder::kOpen) opened_ = true;
  if (order.what == SpillOrder::kLook) {
    news->sizes = SizesIn(text);
    look_at_ = now + kPeriod;
  }
  if (order.request.has_value()) {
    news->files.push_back({*order.request, std::move(file)});
  } else {
    CloseElsewhere(std::move(file), order.uid);  // too late
  }
  SendNext(now);
}

void SpillStore::GiveUpRequests(News* news) {
  for (const uint64_t request : std::exchange(forsaken_, {})) {
    news->files.push_back({request, UniqueFd()});
  }
  if (!hangs_) return;
  for (Pending& order : orders_) {
    if (!order.request.has_value()) continue;
    news->files.push_back({*order.request, UniqueFd()});
    order.request.reset();
  }
  // The first one is being served: that file comes yet.
  const auto wanted = [](const Pending& order) { return order.what == SpillOrder::kEnd; };
  orders_.erase(std::remove_if(orders_.begin() + 1, orders_.end(), std::not_fn(wanted)),
                orders_.end());
}

SpillStore::News SpillStore::OnTime(Instant now) {
  News news;
  if (!socket_ && now >= rests_until_) Start(now);
  if (asked_at_.has_value() && !hangs_ && now >= *asked_at_ + kPatience) {
    hangs_ = true;
    spdlog::warn(
        "the file system of {} has not answered for {} s: until it does, programs get no spill "
        "files, and no more room in those they have",
        EscapeText(directory_), kPatience.ns / 1000000000);
  }
  GiveUpRequests(&news);
  if (opened_ && !hangs_ && files_ > 0 && orders_.empty() && now >= look_at_) {
    Order(SpillOrder(), std::nullopt, now);
  }
  return news;
}

std::optional<Instant> SpillStore::wake() const {
  if (!socket_) return rests_until_;
  if (asked_at_.has_value()) {
    return hangs_ ? std::nullopt : std::optional(*asked_at_ + kPatience);
  }
  return files_ > 0 ? std::optional(look_at_) : std::nullopt;
}

void SpillStore::Lose(Instant now, const std::string& why) {
  trouble_ = why;
  if (std::exchange(opened_, false)) {
    spdlog::warn("{}; the spill files that programs have are not watched any more",
                 EscapeText(why));
  }
  if (child_ > 0) kill(child_, SIGKILL);
  if (child_ > 0) waitpid(child_, nullptr, WNOHANG);
  child_ = 0;
  socket_.Reset();
  for (const Pending& order : std::exchange(orders_, {})) {
    if (order.request.has_value()) forsaken_.push_back(*order.request);
  }
  asked_at_.reset();
  hangs_ = false;
  available_ = Bytes();
  files_ = 0;
  rests_until_ = now + kRest;
}

}  // namespace tandem::daemon
