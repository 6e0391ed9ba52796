// The echo server of echo.c, with the C++ wrappers.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <hearken.hpp>
#include <map>

using hearken_cpp::Poller;
using hearken_cpp::Registration;

namespace {

volatile std::sig_atomic_t stopped;

class Socket {
public:
    explicit Socket(int fd) : fd_(fd) {
        if (fd < 0) throw std::system_error(errno, std::generic_category(), "socket");
    }
    Socket(Socket &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Socket &operator=(Socket &&) = delete;
    ~Socket() {
        if (fd_ >= 0) close(fd_);
    }
    int fd() const { return fd_; }

private:
    int fd_;
};

// The registration is declared last, so that it ends before the socket is closed.
struct Client {
    Client(Poller &poller, int fd)
        : socket(fd), registration(poller, fd, HEARKEN_READ, static_cast<std::uint64_t>(fd)) {}
    Socket socket;
    Registration registration;
};

// Echoes what has arrived. Returns false when the connection has ended.
bool echo(int client) {
    char bytes[4096];
    for (;;) {
        ssize_t count = recv(client, bytes, sizeof bytes, MSG_DONTWAIT);
        if (count < 0 && errno == EAGAIN) return true;
        if (count <= 0 || send(client, bytes, static_cast<size_t>(count), MSG_NOSIGNAL) != count)
            return false;
    }
}

void run(const char *mechanism) {
    // Level-triggered over any mechanism: nothing needs to be reported back or armed again.
    Poller poller(mechanism, HEARKEN_LEVEL);
    Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto *name = reinterpret_cast<sockaddr *>(&address);
    if (bind(listener.fd(), name, length) < 0 || listen(listener.fd(), 128) < 0 ||
        getsockname(listener.fd(), name, &length) < 0)
        throw std::system_error(errno, std::generic_category(), "listen");
    Registration accepting(poller, listener.fd(), HEARKEN_READ,
                           static_cast<std::uint64_t>(listener.fd()));
    std::printf("%d\n", ntohs(address.sin_port));
    std::fflush(stdout);

    std::map<int, Client> clients;
    sigset_t during_wait;
    sigprocmask(SIG_BLOCK, nullptr, &during_wait);
    sigdelset(&during_wait, SIGTERM);
    while (!stopped) {
        hearken_event events[64];
        int count = poller.wait(events, 64, std::nullopt, &during_wait).value_or(0);
        for (int i = 0; i < count; i++) {
            int fd = static_cast<int>(events[i].data);
            if (fd == listener.fd()) {
                int client = accept(fd, nullptr, nullptr);
                if (client >= 0) clients.try_emplace(client, poller, client);
            } else if (!echo(fd)) {
                clients.erase(fd);
            }
        }
    }
}

}  // namespace

int main(int argc, char **argv) try {
    // SIGTERM is blocked except during waits, so that none is missed.
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    signal(SIGTERM, [](int) { stopped = 1; });
    sigprocmask(SIG_BLOCK, &blocked, nullptr);
    run(argc > 1 ? argv[1] : nullptr);
} catch (const std::exception &error) {
    std::fprintf(stderr, "echo: %s\n", error.what());
    return 1;
}
