#include "src/serve/serve.h"

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "src/base/json.h"
#include "src/cli/environment.h"
#include "src/cli/print.h"
#include "src/cli/serve.h"
#include "src/cli/top/source.h"
#include "src/history/local_time.h"
#include "src/history/state_dir.h"
#include "src/serve/server.h"
#include "src/serve/site.h"
#include "src/serve/token.h"
#include "src/usage/usage.h"

namespace tandem::serve {
namespace {

namespace fs = std::filesystem;

constexpr Duration kInterval = Seconds(1);
constexpr int kEndedBySignal = 128;

// Signals that end it. All threads leave them to the main thread.
class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action;
      // Under nohup, SIGHUP stays ignored.
      const bool ignored = sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
      if (!ignored) sigaddset(&signals_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }

  int Await() const {
    int signal = 0;
    while (sigwait(&signals_, &signal) != 0) {
    }
    return signal;
  }

 private:
  sigset_t signals_;
};

// PREFIX/share/tandem/web, of PREFIX/lib/tandem/tandem-serve.
std::string PageDirectory() {
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  return executable.parent_path().parent_path().parent_path() / "share" / "tandem" / "web";
}

Snapshot AskDaemon(cli::top::Source* source, cli::top::Model* model, std::optional<uid_t> viewer) {
  source->Refresh(model);
  return MakeSnapshot(*model, history::NowUnixNs(), viewer);
}

std::string OwnHostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

bool IsWildcard(const std::string& host) {
  return host == "0.0.0.0" || host == "::";
}

std::string UrlOf(const Listener& listener) {
  Address address = listener.address;
  if (IsWildcard(address.host)) address.host = OwnHostName();
  return "http://" + FormatAddress(address) + "/";
}

std::string Announcement(const Listener& listener, const cli::ServeOptions& options,
                         const std::string& token) {
  const std::string url = UrlOf(listener);
  if (options.json) {
    return AsciiJson({{"url", url},
                      {"address", listener.address.host},
                      {"port", listener.address.port},
                      {"token_file",
                       token.empty() ? nlohmann::json() : nlohmann::json(options.token_file)},
                      {"privacy", options.privacy}}) +
           "\n";
  }
  if (token.empty()) return fmt::format("Open {} in a browser. Ctrl-C ends it.\n", url);
  // A log shall not have the token.
  const std::string shown = isatty(STDOUT_FILENO) != 0 ? token : "TOKEN";
  return fmt::format(
      "Open {}#token={} in a browser. Other clients send `Authorization: Bearer TOKEN`.\n"
      "TOKEN is the text of {}.\n{}Ctrl-C ends it.\n",
      url, shown, options.token_file,
      listener.loopback
          ? ""
          : "The connection is not encrypted: readers of the network see the token.\n");
}

struct Start {
  Listener listener;
  std::string token;
};

Result<Start> Prepare(const cli::ServeOptions& options) {
  TRY(cli::ChooseGpu(options.gpu));
  ASSIGN_OR_RETURN(const Address address, ParseAddress(options.listen));
  Start start;
  ASSIGN_OR_RETURN(start.listener, Listen(address));
  if (!start.listener.loopback && options.token_file.empty()) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("other machines can reach {}: add --token-file FILE, so that clients "
                             "need a token; or listen at 127.0.0.1:{}",
                             options.listen, address.port)};
  }
  if (!options.token_file.empty()) {
    ASSIGN_OR_RETURN(start.token, ReadOrMakeToken(options.token_file));
  }
  return start;
}

int Run(const cli::ServeOptions& options) {
  const EndSignals signals;
  const Result<Start> start = Prepare(options);
  if (!start.ok()) return cli::Fail(start.error());
  const std::optional<uid_t> viewer = options.privacy ? std::optional(getuid()) : std::nullopt;
  cli::top::Source source;
  cli::top::Model model;
  Sampler sampler([&] { return AskDaemon(&source, &model, viewer); }, kInterval);
  Api api(&sampler, {viewer, history::AccountsFile(), history::EventsFile()});
  Site site(&api, &sampler, Pages::Read(PageDirectory()),
            {start->listener.address, start->listener.loopback, start->token});
  Server server([&](const httplib::Request& request, httplib::Response& response) {
    site.Handle(request, response);
  });
  std::thread serving([&] { server.Serve(start->listener.socket.get()); });
  cli::Print(Announcement(start->listener, options, start->token));
  const int signal = signals.Await();
  sampler.Stop();
  server.Stop();
  serving.join();
  return signal == SIGTERM ? 0 : kEndedBySignal + signal;
}

}  // namespace

int Main(int argc, char** argv) {
  CLI::App app{"Serve a page, JSON and metrics over HTTP.", "tandem serve"};
  cli::ServeOptions options;
  cli::AddServeOptions(&app, &options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return usage::Explain(app, error);
  }
  return Run(options);
}

}  // namespace tandem::serve
