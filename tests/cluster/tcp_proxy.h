// A link between two processes of this machine that a test can cut, hold up and heal. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

namespace heddle {

class TcpProxy {
 public:
  enum class Mode {
    kOpen,  // passes everything on
    kHeld,  // takes connections, and passes nothing on in either direction
    kDeaf,  // passes on what the caller sends, but no answers
    kCut,   // ends all connections and every new one at once
  };
  // Connections go to a port of 127.0.0.1, which SetTarget may change; 0: nobody is there yet.
  explicit TcpProxy(int target_port = 0);
  // Connections go to a UNIX socket.
  explicit TcpProxy(const std::string& target_socket);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  void SetTarget(int port) { target_ = port; }
  void SetMode(Mode mode) { mode_ = mode; }
  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int64_t bytes() const { return bytes_; }  // passed on so far, both directions

 private:
  void Run();
  // -1: nobody is there.
  int ConnectToTarget() const;

  const std::string target_socket_;  // empty: target_ counts
  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> target_;
  std::atomic<Mode> mode_{Mode::kOpen};
  std::atomic<int64_t> bytes_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace heddle
