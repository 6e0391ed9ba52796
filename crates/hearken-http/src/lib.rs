//! HTTP/1.1 without I/O: bytes in, messages out; messages in, bytes out.
