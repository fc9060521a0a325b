#include "src/serve/address.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

namespace tandem::serve {
namespace {

constexpr int kBacklog = 128;
constexpr uint32_t kLoopbackNet = 127;  // first byte of 127.0.0.0/8

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

// "[::1]:80" without the port and the brackets.
std::string HostOf(std::string_view text) {
  if (text.starts_with('[')) return std::string(text.substr(1, text.find(']') - 1));
  return std::string(text.substr(0, text.rfind(':')));
}

bool IsLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in ip;
    std::memcpy(&ip, address, sizeof(ip));
    return ntohl(ip.sin_addr.s_addr) >> 24 == kLoopbackNet;
  }
  sockaddr_in6 ip;
  std::memcpy(&ip, address, sizeof(ip));
  return IN6_IS_ADDR_LOOPBACK(&ip.sin6_addr);
}

uint16_t PortOf(int socket) {
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &length) != 0) return 0;
  if (bound.ss_family == AF_INET6) {
    sockaddr_in6 ip;
    std::memcpy(&ip, &bound, sizeof(ip));
    return ntohs(ip.sin6_port);
  }
  sockaddr_in ip;
  std::memcpy(&ip, &bound, sizeof(ip));
  return ntohs(ip.sin_port);
}

Error CannotListen(const Address& address, int error) {
  const std::string where = FormatAddress(address);
  if (error == EADDRINUSE) {
    return Error{
        ErrorCode::kFailed,
        fmt::format("another program listens at {}; choose another port with --listen", where)};
  }
  if (error == EADDRNOTAVAIL) {
    return Error{ErrorCode::kFailed,
                 fmt::format("{} is no address of this machine; `ip address` lists those it has, "
                             "and 0.0.0.0 means all",
                             address.host)};
  }
  if (error == EACCES) {
    return Error{ErrorCode::kRefused,
                 fmt::format("port {} needs root; choose one above 1023", address.port)};
  }
  return Error{ErrorCode::kFailed,
               fmt::format("cannot listen at {}: {}", where, std::strerror(error))};
}

}  // namespace

Result<Address> ParseAddress(const std::string& text) {
  const auto wrong = [&] {
    return Error{ErrorCode::kInvalid,
                 "'" + text + "' is no address; write for example 127.0.0.1:9870 or [::1]:9870"};
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size()) return wrong();
  Address address{HostOf(text), 0};
  const bool bracketed = text[0] == '[' && colon > 0 && text[colon - 1] == ']';
  if (!bracketed && (text[0] == '[' || address.host.find(':') != std::string::npos)) return wrong();
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, address.port);
  if (error != std::errc() || stop != end || address.host.empty()) return wrong();
  return address;
}

std::string FormatAddress(const Address& address) {
  const bool ipv6 = address.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", ipv6 ? "[" : "", address.host, ipv6 ? "]" : "", address.port);
}

Result<Listener> Listen(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(address.port);
  const int failed = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &list);
  if (failed != 0) {
    return Error{ErrorCode::kFailed,
                 fmt::format("there is no address for '{}' ({}); write for example 127.0.0.1:{}",
                             address.host, gai_strerror(failed), address.port)};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  Listener listener{
      UniqueFd(socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), address,
      IsLoopback(list->ai_addr)};
  const int fd = listener.socket.get(), on = 1;
  // After a restart connections of the last process may linger at the port.
  if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(fd, list->ai_addr, list->ai_addrlen) != 0 || listen(fd, kBacklog) != 0) {
    return CannotListen(address, errno);
  }
  listener.address.port = PortOf(fd);
  return listener;
}

bool IsOwnName(std::string_view host_header, const Address& listen) {
  if (host_header.starts_with('[')) {
    const size_t end = host_header.find(']');
    if (end == host_header.npos) return false;
    if (end + 1 < host_header.size() && host_header[end + 1] != ':') return false;
  }
  const bool port = host_header.find(':') != std::string_view::npos;
  const std::string host = Lower(port ? HostOf(host_header) : std::string(host_header));
  if (host == "localhost" || host == Lower(listen.host)) return true;
  in_addr ip4;
  if (inet_pton(AF_INET, host.c_str(), &ip4) == 1) {
    return ntohl(ip4.s_addr) >> 24 == kLoopbackNet;
  }
  in6_addr ip6;
  return inet_pton(AF_INET6, host.c_str(), &ip6) == 1 && IN6_IS_ADDR_LOOPBACK(&ip6);
}

}  // namespace tandem::serve
