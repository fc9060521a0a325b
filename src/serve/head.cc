#include "src/serve/head.h"

#include <algorithm>
#include <cctype>

namespace tandem::serve {
namespace {

constexpr std::string_view kEnd = "\r\n\r\n", kLineEnd = "\r\n";
constexpr const char* kUsed[] = {"host", "authorization", "accept", "connection"};

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

Head Refuse(int status, const char* reason) {
  return {status, reason, ""};
}

// Ends of lines are \r\n, and nothing else is a control character.
bool IsPlain(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') {
      ++i;
    } else if (static_cast<unsigned char>(text[i]) < ' ' && text[i] != '\t') {
      return false;
    }
  }
  return true;
}

std::string_view TakeLine(std::string_view* text) {
  const size_t end = text->find(kLineEnd);
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(end + kLineEnd.size());
  return line;
}

Head CheckRequestLine(std::string_view line) {
  const size_t first = line.find(' '), second = line.rfind(' ');
  const std::string_view target =
      first < second ? line.substr(first + 1, second - first - 1) : std::string_view();
  const std::string_view version = line.substr(std::min(second + 1, line.size()));
  if (target.empty() || target.find(' ') != target.npos || target[0] != '/') {
    return Refuse(400, "the request line is not like GET /metrics HTTP/1.1");
  }
  if (target.size() > kLongestTarget)
    return Refuse(414, "the address is longer than 4096 characters");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return Refuse(505, "only HTTP/1.1 and HTTP/1.0 are served");
  }
  const std::string_view method = line.substr(0, first);
  if (method != "GET" && method != "HEAD") {
    return Refuse(405, "only GET and HEAD are served; `tandem` gives orders");
  }
  return {0, "", std::string(line) + "\r\n"};
}

bool IsBody(const std::string& name, std::string_view value) {
  return name == "transfer-encoding" || (name == "content-length" && value != "0");
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

size_t EndOfHead(std::string_view text) {
  const size_t end = text.find(kEnd);
  return end == text.npos ? end : end + kEnd.size();
}

Head CheckHead(std::string_view text) {
  if (!IsPlain(text)) return Refuse(400, "the request has control characters");
  Head head = CheckRequestLine(TakeLine(&text));
  if (head.refused != 0) return head;
  int hosts = 0;
  while (!text.empty()) {
    const std::string_view line = TakeLine(&text);
    if (line.empty()) break;
    const size_t colon = line.find(':');
    const std::string name = LowerCase(line.substr(0, colon));
    if (colon == line.npos || colon == 0 || name.find_first_of(" \t") != name.npos) {
      return Refuse(400, "a header is not like Name: value");
    }
    const std::string_view value = Trim(line.substr(colon + 1));
    if (IsBody(name, value)) return Refuse(413, "requests with a body are not served");
    if (std::find(std::begin(kUsed), std::end(kUsed), name) == std::end(kUsed)) continue;
    hosts += name == "host" ? 1 : 0;
    head.text += name + ": " + std::string(value) + "\r\n";
  }
  if (hosts != 1) return Refuse(400, "the request must have one Host header");
  head.text += "\r\n";
  return head;
}

}  // namespace tandem::serve
