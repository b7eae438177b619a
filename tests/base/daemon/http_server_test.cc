#include "base/daemon/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr absl::Duration kLimit = absl::Seconds(20);

// A connection that sends and reads bytes as they are.
class Peer {
 public:
  explicit Peer(int port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Peer() { close(socket_); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void Send(const std::string& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t part = send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (part <= 0) return;  // the server closed
      sent += static_cast<size_t>(part);
    }
  }
  // Everything until the server closes, or until the bytes contain `until`.
  std::string Read(const std::string& until = "") {
    const absl::Time limit = absl::Now() + kLimit;
    std::string all;
    char buffer[65536];
    while (until.empty() || all.find(until) == std::string::npos) {
      pollfd waiting = {socket_, POLLIN, 0};
      const auto left = absl::ToInt64Milliseconds(limit - absl::Now());
      if (left <= 0 || poll(&waiting, 1, static_cast<int>(left)) <= 0) {
        ADD_FAILURE() << "no end after: " << all.substr(0, 500);
        break;
      }
      const ssize_t part = recv(socket_, buffer, sizeof(buffer), 0);
      if (part <= 0) break;
      all.append(buffer, static_cast<size_t>(part));
    }
    return all;
  }

 private:
  const int socket_;
};

std::string Get(const std::string& target, const std::string& headers = "") {
  return absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
                      headers, "\r\n");
}

std::unique_ptr<HttpServer> Serve(HttpServer::Handler handler, HttpServerOptions options = {}) {
  options.address = "127.0.0.1:0";
  auto server = HttpServer::Start(options, std::move(handler));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

// Says what arrived.
HttpResponse Echo(const HttpRequest& request) {
  HttpResponse response{.content_type = "text/plain"};
  response.body = absl::StrCat(request.method, " ", request.path, "\n");
  for (const auto& [name, value] : request.query)
    absl::StrAppend(&response.body, "query ", name, "=", value, "\n");
  const auto header = request.headers.find("x-thing");
  if (header != request.headers.end())
    absl::StrAppend(&response.body, "x-thing: ", header->second, "\n");
  absl::StrAppend(&response.body, "body ", request.body.size(), "\n");
  response.headers.emplace_back("X-Answer", "yes");
  return response;
}

std::string Ask(int port, const std::string& request) {
  Peer peer(port);
  peer.Send(request);
  return peer.Read();
}

// Keeps what a form with a file brings.
struct Kept {
  std::string fields;  // "NAME(FILE)=VALUE;" by piece, without the cuts
  std::atomic<int> ended = 0;
};
class KeepForm final : public FormUpload {
 public:
  explicit KeepForm(Kept* kept) : kept_(kept) {}
  ~KeepForm() override { ++kept_->ended; }
  absl::Status Take(const std::string& field, const std::string& file,
                    std::string_view piece) override {
    if (field == "bad") return absl::InvalidArgumentError("a bad field");
    if (field != last_) absl::StrAppend(&kept_->fields, field, "(", file, ")=");
    last_ = field;
    kept_->fields += piece;
    return absl::OkStatus();
  }
  HttpResponse Finish(const absl::Status& taken) override {
    return {.status = taken.ok() ? 200 : 400,
            .body = taken.ok() ? absl::StrCat("<", kept_->fields, ">")
                               : absl::StrCat("<", taken.message(), ">")};
  }

 private:
  Kept* const kept_;
  std::string last_;
};

std::string Part(const std::string& name, const std::string& value, const std::string& file = "") {
  return absl::StrCat("--cut\r\nContent-Disposition: form-data; name=\"", name, "\"",
                      file.empty() ? "" : absl::StrCat("; filename=\"", file, "\""), "\r\n\r\n",
                      value, "\r\n");
}
std::string Form(const std::string& body, const std::string& headers = "Host: localhost\r\n",
                 const std::string& type = "multipart/form-data; boundary=cut") {
  return absl::StrCat("POST /take HTTP/1.1\r\nConnection: close\r\n", headers,
                      "Content-Type: ", type, "\r\nContent-Length: ", body.size(), "\r\n\r\n",
                      body);
}

TEST(HttpServer, AFormWithAFileIsTakenPieceByPiece) {
  Kept kept;
  bool allowed = true;
  auto started = HttpServer::Start(
      {.address = "127.0.0.1:0", .max_body_bytes = 100, .max_upload_bytes = 1 << 20},
      [](const HttpRequest& request) { return HttpResponse{.body = "plain " + request.body}; },
      [&](const HttpRequest& request) -> std::variant<std::unique_ptr<FormUpload>, HttpResponse> {
        if (!allowed) return HttpResponse{.status = 403, .body = "no " + request.path};
        return std::make_unique<KeepForm>(&kept);
      });
  ASSERT_TRUE(started.ok()) << started.status();
  const std::unique_ptr<HttpServer> server = *std::move(started);
  const auto ask = [&](const std::string& request) {
    kept.fields.clear();
    Peer peer(server->port());
    peer.Send(request);
    return peer.Read();
  };
  const std::string large(300'000, 'x');
  const std::string whole = Part("a", "1 & 2") + Part("file", large, "m.onnx") + "--cut--\r\n";
  const std::string answer = ask(Form(whole));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("<a()=1 & 2file(m.onnx)=" + large + ">"));
  EXPECT_EQ(kept.ended, 1);
  // What fails on the way is told at the end, also in the middle of a large file.
  EXPECT_THAT(ask(Form(Part("bad", "1") + whole)), HasSubstr("<a bad field>"));
  EXPECT_THAT(ask(Form(Part("a", "1") + Part("file", large, "f"))),
              HasSubstr("the form ends before its last field does"));
  EXPECT_THAT(ask(Form(large)), HasSubstr("<>")) << "it has no field";
  // Who may not is refused before the file is there.
  allowed = false;
  EXPECT_THAT(ask(Form("", "Host: localhost\r\n")), HasSubstr("no /take"));
  allowed = true;
  EXPECT_THAT(ask(Form("--cut--", "Host: stranger.example\r\n")), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(ask("POST /take HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n"
                  "Content-Type: multipart/form-data; boundary=cut\r\n\r\n"),
              StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(ask(Form("--cut--", "Host: localhost\r\n", "multipart/form-data")),
              StartsWith("HTTP/1.1 400"));
  // Other forms are as they were.
  EXPECT_THAT(ask(Form("a=1", "Host: localhost\r\n", "application/x-www-form-urlencoded")),
              HasSubstr("plain a=1"));
  EXPECT_THAT(ask(Form(std::string(200, 'x'), "Host: localhost\r\n", "text/plain")),
              StartsWith("HTTP/1.1 413"));
}

TEST(HttpServer, AFormThatBreaksOffIsLetGo) {
  Kept kept;
  auto started = HttpServer::Start(
      {.address = "127.0.0.1:0", .max_upload_bytes = 1 << 20, .idle_s = 1},
      [](const HttpRequest&) { return HttpResponse{}; },
      [&](const HttpRequest&) -> std::variant<std::unique_ptr<FormUpload>, HttpResponse> {
        return std::make_unique<KeepForm>(&kept);
      });
  ASSERT_TRUE(started.ok()) << started.status();
  {
    Peer peer((*started)->port());
    const std::string form = Form(Part("file", std::string(200'000, 'x'), "f"));
    peer.Send(form.substr(0, form.size() / 2));
  }
  const absl::Time limit = absl::Now() + kLimit;
  while (kept.ended == 0 && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(5));
  started->reset();
  EXPECT_EQ(kept.ended, 1);
}

TEST(HttpServer, PassesRequestsAndAnswers) {
  const auto server = Serve(Echo);
  const std::string answer =
      Ask(server->port(), Get("/a%20b?x=1%262&y=%C3%BC+z&x=3", "X-Thing: some\r\n"));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer,
              HasSubstr("GET /a b\nquery x=1&2\nquery y=\xC3\xBC z\nx-thing: some\nbody 0"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain\r\n"));
  EXPECT_THAT(answer, HasSubstr("X-Answer: yes\r\n"));
  EXPECT_THAT(answer, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
  const std::string posted = Ask(server->port(),
                                 "POST /p HTTP/1.1\r\nHost: 127.0.0.1:80\r\nConnection: "
                                 "close\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_THAT(posted, HasSubstr("POST /p\nbody 3"));
}

TEST(HttpServer, HeadHasNoBody) {
  const auto server = Serve(Echo);
  const std::string answer =
      Ask(server->port(), "HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, Not(HasSubstr("HEAD /")));
}

TEST(HttpServer, RefusesWhatIsTooLargeOrUnknown) {
  HttpServerOptions options;
  options.max_body_bytes = 1000;
  std::atomic<int> handled = 0;
  const auto server = Serve(
      [&handled](const HttpRequest& request) {
        ++handled;
        return Echo(request);
      },
      options);
  const std::string begin = "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
  EXPECT_THAT(Ask(server->port(),
                  absl::StrCat(begin, "Content-Length: 1000\r\n\r\n", std::string(1000, 'x'))),
              HasSubstr("body 1000"));
  EXPECT_EQ(handled, 1);
  EXPECT_THAT(Ask(server->port(), absl::StrCat(begin, "Content-Length: 1001\r\n\r\n")),
              StartsWith("HTTP/1.1 413"));
  // A request may not say how long its body is. Its connection is closed once the body is over the limit.
  EXPECT_THAT(Ask(server->port(), absl::StrCat(begin, "Transfer-Encoding: chunked\r\n\r\n3e9\r\n",
                                               std::string(1001, 'x'), "\r\n0\r\n\r\n")),
              Not(HasSubstr("200")));
  EXPECT_THAT(
      Ask(server->port(), Get("/", absl::StrCat("X-Long: ", std::string(100'000, 'x'), "\r\n"))),
      Not(HasSubstr("200")));
  EXPECT_THAT(Ask(server->port(), "PUT / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
              StartsWith("HTTP/1.1 405"));
  EXPECT_EQ(handled, 1);
}

// A page of a stranger may have a name that leads to this machine.
TEST(HttpServer, RefusesTheNamesOfOtherMachines) {
  const auto server = Serve(Echo);
  const auto as = [&](const std::string& host) {
    return Ask(server->port(),
               absl::StrCat("GET / HTTP/1.1\r\nConnection: close\r\nHost: ", host, "\r\n\r\n"));
  };
  for (const char* good : {"localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "[::1]"})
    EXPECT_THAT(as(good), StartsWith("HTTP/1.1 200")) << good;
  for (const char* bad :
       {"evil.example", "evil.example:8080", "localhost.evil.example", "10.0.0.1:80"})
    EXPECT_THAT(as(bad), StartsWith("HTTP/1.1 403")) << bad;
}

TEST(HttpServer, ListensOnThisMachineOnly) {
  const auto start = [](const std::string& address) {
    return HttpServer::Start({.address = address}, Echo).status();
  };
  for (const char* address : {"0.0.0.0:8080", "example.org:80", "192.168.0.1:0"}) {
    const absl::Status status = start(address);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << address;
    EXPECT_THAT(std::string(status.message()), HasSubstr("ssh -L")) << address;
  }
  for (const char* address :
       {"", "8080", "localhost", "localhost:", "localhost:99999", "localhost:8a"})
    EXPECT_THAT(std::string(start(address).message()), HasSubstr("wanted HOST:PORT")) << address;
  const auto server = Serve(Echo);
  const absl::Status taken = start(server->address());
  EXPECT_THAT(std::string(taken.message()), HasSubstr("in use"));
}

TEST(HttpServer, EndsConnectionsOnWhichNothingMoves) {
  HttpServerOptions options;
  options.idle_s = 1;
  const auto server = Serve(Echo, options);
  Peer peer(server->port());
  peer.Send("GET / HTTP/1.1\r\nHost: loc");
  peer.Read();  // fails if there is no end
}

TEST(HttpServer, SendsEvents) {
  auto stream = std::make_shared<EventStream>();
  const auto server = Serve([&](const HttpRequest&) { return HttpResponse{.events = stream}; });
  Peer peer(server->port());
  peer.Send(Get("/events"));
  EXPECT_THAT(peer.Read("\r\n\r\n"), HasSubstr("text/event-stream"));
  for (int i = 0; i < 50; ++i) {
    const std::string text = EventText("news", absl::StrCat("first ", i, "\nsecond"));
    EXPECT_TRUE(stream->Send(std::make_shared<const std::string>(text)));
    EXPECT_THAT(peer.Read("second\n\n"),
                HasSubstr(absl::StrCat("event: news\ndata: first ", i, "\ndata: second\n\n")));
  }
  // Larger than any buffer on the way.
  const std::string large(3 << 20, 'x');
  EXPECT_TRUE(stream->Send(std::make_shared<const std::string>(EventText("large", large))));
  EXPECT_GT(peer.Read("x\n\n").size(), large.size());
  stream->Close();
  peer.Read();  // fails if there is no end
  EXPECT_FALSE(stream->Send(std::make_shared<const std::string>("late")));
}

TEST(HttpServer, DropsReadersThatDoNotRead) {
  auto stream = std::make_shared<EventStream>();
  const auto server = Serve([&](const HttpRequest&) { return HttpResponse{.events = stream}; });
  Peer peer(server->port());
  peer.Send(Get("/events"));
  peer.Read("\r\n\r\n");
  const auto text =
      std::make_shared<const std::string>(EventText("large", std::string(1 << 20, 'x')));
  int sent = 0;
  while (stream->Send(text) && sent < 1000) {
    ++sent;
    absl::SleepFor(absl::Milliseconds(2));
  }
  EXPECT_LT(sent, 200) << "what nobody reads is not kept";
  EXPECT_TRUE(stream->closed());
}

TEST(HttpServer, NoticesReadersThatWentAway) {
  auto stream = std::make_shared<EventStream>();
  const auto server = Serve([&](const HttpRequest&) { return HttpResponse{.events = stream}; });
  {
    Peer peer(server->port());
    peer.Send(Get("/events"));
    peer.Read("\r\n\r\n");
  }
  const auto beat = std::make_shared<const std::string>(kEventBeat);
  const absl::Time limit = absl::Now() + kLimit;
  while (stream->Send(beat) && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_TRUE(stream->closed());
}

// Sleeping streams must not hold up the end, and other requests are answered while they sleep.
TEST(HttpServer, HundredsOfStreamsTakeNoThreads) {
  std::vector<std::shared_ptr<EventStream>> streams;
  absl::Mutex mutex;
  auto server = Serve([&](const HttpRequest& request) {
    if (request.path != "/events") return Echo(request);
    absl::MutexLock lock(&mutex);
    streams.push_back(std::make_shared<EventStream>());
    return HttpResponse{.events = streams.back()};
  });
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 300; ++i) {
    peers.push_back(std::make_unique<Peer>(server->port()));
    peers.back()->Send(Get("/events"));
    EXPECT_THAT(peers.back()->Read("\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  }
  EXPECT_THAT(Ask(server->port(), Get("/")), HasSubstr("GET /"));
  const auto text = std::make_shared<const std::string>(EventText("all", "of them"));
  for (const auto& stream : streams) EXPECT_TRUE(stream->Send(text));
  for (const auto& peer : peers) EXPECT_THAT(peer->Read("them\n\n"), HasSubstr("event: all"));
  server.reset();
  for (const auto& stream : streams) EXPECT_TRUE(stream->closed());
}

TEST(HttpServer, ReadsForms) {
  const auto fields = ParseForm("reason=a+b%26c&empty=&only&x=1&x=2&bad=%zz%4");
  EXPECT_EQ(fields.at("reason"), "a b&c");
  EXPECT_EQ(fields.at("empty"), "");
  EXPECT_EQ(fields.at("only"), "");
  EXPECT_EQ(fields.at("x"), "1");
  EXPECT_EQ(fields.at("bad"), "%zz%4");
  EXPECT_TRUE(ParseForm("").empty());
}

}  // namespace
}  // namespace heddle
