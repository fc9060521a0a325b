#include "src/wire/codec.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace tandem::wire {
namespace {

class Writer {
 public:
  template <typename T>
  requires std::is_unsigned_v<T>
  void Put(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
    }
  }
  void Put(const std::string& text) {
    const auto length = static_cast<uint16_t>(std::min<size_t>(text.size(), kMaxString));
    Put(length);
    PutRaw(text.data(), length);
  }
  void PutRaw(const char* data, size_t length) {
    const auto* from = reinterpret_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), from, from + length);
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  requires std::is_unsigned_v<T>
  bool Get(T& value) {
    if (bytes_.size() < sizeof(T)) return false;
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof(T); ++i) sum |= std::to_integer<uint64_t>(bytes_[i]) << (8 * i);
    value = static_cast<T>(sum);
    bytes_ = bytes_.subspan(sizeof(T));
    return true;
  }
  bool Get(std::string& text) {
    uint16_t length = 0;
    if (!Get(length) || length > kMaxString || bytes_.size() < length) return false;
    text.assign(reinterpret_cast<const char*>(bytes_.data()), length);
    bytes_ = bytes_.subspan(length);
    return true;
  }
  bool empty() const { return bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
};

// Of a message's fields, how many an older peer may not leave out: the first ones.
template <typename M>
constexpr size_t RequiredFields() {
  if constexpr (requires { M::kRequired; }) {
    return M::kRequired;
  } else {
    return std::tuple_size_v<decltype(std::declval<M&>().Fields())>;
  }
}

Error Broken(std::string message) {
  return Error{ErrorCode::kInvalid, std::move(message)};
}

template <typename M>
Result<Message> DecodeAs(std::span<const std::byte> payload) {
  M message;
  if constexpr (std::is_same_v<M, Answer>) {
    message.json.assign(reinterpret_cast<const char*>(payload.data()), payload.size());
  } else {
    Reader reader(payload);
    size_t taken = 0;
    const auto take = [&](auto& field) {
      const bool left_out = taken >= RequiredFields<M>() && reader.empty();
      ++taken;
      return left_out || reader.Get(field);
    };
    const bool whole =
        std::apply([&](auto&... field) { return (take(field) && ...); }, message.Fields());
    if (!whole) {
      return Broken("message of type " + std::to_string(M::kType) + " has the wrong length");
    }
  }
  return Message(std::move(message));
}

// The alternative of Message whose kType is `type`.
template <size_t I = 0>
Result<Message> DecodeType(uint16_t type, std::span<const std::byte> payload) {
  if constexpr (I == std::variant_size_v<AnyKind>) {
    return Broken("there is no message of type " + std::to_string(type));
  } else {
    using M = std::variant_alternative_t<I, AnyKind>;
    if (M::kType == type) return DecodeAs<M>(payload);
    return DecodeType<I + 1>(type, payload);
  }
}

Header ReadHeader(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Header header;
  reader.Get(header.magic);
  reader.Get(header.version);
  reader.Get(header.type);
  reader.Get(header.length);
  return header;
}

Status CheckHeader(const Header& header, uint32_t longest) {
  if (header.magic != kMagic) return Broken("a message does not begin as Tandem's do");
  const bool understood = header.version >= kOldestVersion && header.version <= kVersion;
  if (!understood && header.type != Refused::kType) {
    return Error{ErrorCode::kVersion, "the peer speaks protocol version " +
                                          std::to_string(header.version) + ", this side versions " +
                                          std::to_string(kOldestVersion) + " to " +
                                          std::to_string(kVersion)};
  }
  const uint32_t bound = header.type == Answer::kType ? longest : kMaxPayload;
  if (header.length > bound) {
    return Broken("a message of " + std::to_string(header.length) +
                  " bytes is above the bound of " + std::to_string(bound));
  }
  return {};
}

}  // namespace

std::vector<std::byte> Encode(const Message& message, uint16_t version) {
  Writer payload;
  const uint16_t type = std::visit(
      [&](auto copy) {
        if constexpr (std::is_same_v<decltype(copy), Refused>) {
          if (version != kVersion) copy.version = version;  // understood: not what is refused
        }
        if constexpr (std::is_same_v<decltype(copy), Answer>) {
          payload.PutRaw(copy.json.data(), std::min<size_t>(copy.json.size(), kMaxAnswer));
        } else {
          std::apply([&](auto&... field) { (payload.Put(field), ...); }, copy.Fields());
        }
        return copy.kType;
      },
      message);
  Writer frame;
  frame.Put(kMagic);
  frame.Put(version);
  frame.Put(type);
  frame.Put(static_cast<uint32_t>(payload.bytes().size()));
  frame.bytes().insert(frame.bytes().end(), payload.bytes().begin(), payload.bytes().end());
  return std::move(frame.bytes());
}

void FrameReader::Append(std::span<const std::byte> bytes) {
  if (broken_) return;
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(begin_));
  begin_ = 0;
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

Result<Message> FrameReader::Next() {
  if (broken_) return Broken("the stream broke before");
  const std::span<const std::byte> rest = std::span(buffer_).subspan(begin_);
  const Error incomplete{ErrorCode::kNotFound, "no whole message yet"};
  if (rest.size() < kHeaderBytes) return incomplete;
  const Header header = ReadHeader(rest);
  if (Status ok = CheckHeader(header, bound_); !ok.ok()) {
    broken_ = true;
    return ok.error();
  }
  if (rest.size() < kHeaderBytes + header.length) return incomplete;
  if (header.type != Refused::kType) version_ = header.version;
  Result<Message> message = DecodeType(header.type, rest.subspan(kHeaderBytes, header.length));
  broken_ = !message.ok();
  begin_ += kHeaderBytes + header.length;
  return message;
}

size_t FrameReader::missing() const {
  const std::span<const std::byte> rest = std::span(buffer_).subspan(begin_);
  if (rest.size() < kHeaderBytes) return kHeaderBytes - rest.size();
  return kHeaderBytes + ReadHeader(rest).length - rest.size();
}

}  // namespace tandem::wire
