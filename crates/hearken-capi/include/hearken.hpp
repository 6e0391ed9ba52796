// C++ wrappers of hearken.h, for C++17 and later. A poller closes itself, and a registration removes
// its descriptor. Failures throw std::system_error.
#ifndef HEARKEN_HPP
#define HEARKEN_HPP

#include <hearken.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace hearken_cpp {

inline int check(int result, const char *what) {
    if (result < 0) throw std::system_error(-result, std::generic_category(), what);
    return result;
}

class Poller {
public:
    // Opens a poller. Without a name, HEARKEN_EVENTS selects the mechanism.
    explicit Poller(const char *events = nullptr, unsigned flags = 0) {
        hearken *opened = nullptr;
        int result = hearken_open(events, flags, &opened);
        if (result < 0)
            throw std::system_error(-result, std::generic_category(), hearken_open_error());
        poller_.reset(opened);
    }

    void set(int fd, std::uint32_t events, std::uint64_t data) {
        check(hearken_set(get(), fd, events, data), "hearken_set");
    }

    void remove(int fd) { check(hearken_remove(get(), fd), "hearken_remove"); }

    // Waits and returns the number of events, or no value if a signal handler ended the wait.
    std::optional<int> wait(hearken_event *events, int max,
                            std::optional<std::chrono::nanoseconds> timeout = std::nullopt,
                            const sigset_t *mask = nullptr) {
        timespec time{};
        if (timeout) {
            time.tv_sec = static_cast<time_t>(timeout->count() / 1000000000);
            time.tv_nsec = static_cast<long>(timeout->count() % 1000000000);
        }
        int count = hearken_wait(get(), events, max, timeout ? &time : nullptr, mask);
        if (count == -EINTR) return std::nullopt;
        return check(count, "hearken_wait");
    }

    void wake() { check(hearken_wake(get()), "hearken_wake"); }

    int trigger() const { return check(hearken_trigger(poller_.get()), "hearken_trigger"); }

    hearken *get() { return poller_.get(); }

private:
    struct Close {
        void operator()(hearken *poller) const { hearken_close(poller); }
    };
    std::unique_ptr<hearken, Close> poller_;
};

// A descriptor in the set of a poller. The poller and the descriptor must outlive it.
class Registration {
public:
    Registration(Poller &poller, int fd, std::uint32_t events, std::uint64_t data)
        : poller_(&poller), fd_(fd) {
        poller.set(fd, events, data);
    }
    Registration(Registration &&other) noexcept
        : poller_(std::exchange(other.poller_, nullptr)), fd_(other.fd_) {}
    Registration &operator=(Registration &&other) noexcept {
        std::swap(poller_, other.poller_);
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Registration() {
        if (poller_) hearken_remove(poller_->get(), fd_);
    }

private:
    Poller *poller_;
    int fd_;
};

}  // namespace hearken_cpp

#endif
