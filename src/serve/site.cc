#include "src/serve/site.h"

#include <fmt/core.h>

#include <memory>
#include <optional>
#include <utility>

#include "src/serve/query.h"
#include "src/serve/token.h"

namespace tandem::serve {
namespace {

constexpr std::string_view kBearer = "bearer ";
constexpr Duration kKeepAlive = Seconds(15);  // without an event, so that a lost client is noticed
constexpr int kMostSeconds = 60;
constexpr const char* kPolicy =
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src "
    "'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

bool HasToken(const std::string& header, const std::string& token) {
  if (header.size() <= kBearer.size()) return false;
  for (size_t i = 0; i < kBearer.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(header[i])) != kBearer[i]) return false;
  }
  return SameToken(std::string_view(header).substr(kBearer.size()), token);
}

void Send(const Answer& answer, httplib::Response* response) {
  response->status = answer.status;
  if (answer.lasting) {
    response->headers.erase("Cache-Control");
    response->set_header("Cache-Control", "public, max-age=31536000, immutable");
  }
  if (answer.status == 401) response->set_header("WWW-Authenticate", "Bearer realm=\"tandem\"");
  if (!answer.attachment.empty()) {
    response->set_header("Content-Disposition",
                         "attachment; filename=\"" + answer.attachment + "\"");
  }
  response->set_content(answer.body, answer.type);
}

// One client of /api/v1/live.
class LiveStream {
 public:
  LiveStream(Sampler* sampler, Duration every, std::atomic<int>* streams)
      : sampler_(sampler), every_(every), streams_(streams) {}
  ~LiveStream() { --*streams_; }
  LiveStream(const LiveStream&) = delete;
  LiveStream& operator=(const LiveStream&) = delete;

  // Sends an event; false where the client is gone.
  bool Send(httplib::DataSink* sink) {
    while (MonotonicNow() < next_) {
      const Duration left = next_ - MonotonicNow();
      if (!sampler_->Sleep(std::min(left, Seconds(1))) || !sink->is_writable()) return false;
    }
    const auto snapshot =
        number_ == 0 ? sampler_->Latest(kKeepAlive) : sampler_->Next(number_, kKeepAlive);
    if (!sink->is_writable()) return false;
    std::string event = ": the daemon is slow\n\n";
    if (snapshot != nullptr) {
      number_ = snapshot->number;
      event = "event: now\ndata: " + snapshot->live + "\n\n";
      // The sampler keeps the pace of those that want all.
      if (every_ > Seconds(1)) next_ = MonotonicNow() + every_;
    }
    return sink->write(event.data(), event.size());
  }

 private:
  Sampler* const sampler_;
  const Duration every_;
  std::atomic<int>* const streams_;
  Instant next_;
  uint64_t number_ = 0;  // of the snapshot that was sent last
};

}  // namespace

Site::Site(Api* api, Sampler* sampler, Pages pages, SiteSettings settings)
    : api_(api), sampler_(sampler), pages_(std::move(pages)), settings_(std::move(settings)) {}

std::optional<Answer> Site::WhyNot(const httplib::Request& request, bool data) const {
  if (settings_.loopback && !IsOwnName(request.get_header_value("Host"), settings_.listen)) {
    return ErrorAnswer(
        403, "the Host header names another machine; open " + FormatAddress(settings_.listen));
  }
  if (!data || settings_.token.empty()) return std::nullopt;
  if (HasToken(request.get_header_value("Authorization"), settings_.token)) return std::nullopt;
  return ErrorAnswer(401,
                     "a token is needed: send the header `Authorization: Bearer TOKEN`, with the "
                     "text of the token file");
}

void Site::Handle(const httplib::Request& request, httplib::Response& response) {
  response.set_header("Cache-Control", "no-store");
  response.set_header("X-Content-Type-Options", "nosniff");
  response.set_header("Referrer-Policy", "no-referrer");
  response.set_header("Content-Security-Policy", kPolicy);
  const Answer* const page = pages_.Find(request.path);
  if (const auto refusal = WhyNot(request, page == nullptr)) return Send(*refusal, &response);
  if (page != nullptr) return Send(*page, &response);
  if (request.path == "/api/v1/live") return Live(request, response);
  Send(api_->Get(request.path, request.params, request.get_header_value("Accept")), &response);
}

void Site::Live(const httplib::Request& request, httplib::Response& response) {
  const auto query = Query::Parse(request.params, {"every"});
  if (!query.ok()) return Send(ErrorAnswer(query.error()), &response);
  const auto every = query->Number("every", 1, 1, kMostSeconds);
  if (!every.ok()) return Send(ErrorAnswer(every.error()), &response);
  if (++streams_ > kMostStreams) {
    --streams_;
    return Send(ErrorAnswer(503, fmt::format("there are {} clients of /api/v1/live already; try "
                                             "again later, or ask /api/v1/sessions",
                                             kMostStreams)),
                &response);
  }
  const auto stream = std::make_shared<LiveStream>(sampler_, Seconds(*every), &streams_);
  response.status = 200;
  response.set_chunked_content_provider(
      "text/event-stream",
      [stream](size_t /*offset*/, httplib::DataSink& sink) { return stream->Send(&sink); });
}

}  // namespace tandem::serve
