//! Request head that the examples share.

/// Request head of a browser.
pub(crate) const BROWSER: &[u8] = b"GET /static/css/site.css?v=20240101 HTTP/1.1\r\n\
    Host: www.example.org\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/css,*/*;q=0.1\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Referer: https://www.example.org/index.html\r\n\
    Connection: keep-alive\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\
    If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    If-None-Match: \"5f3e-0123456789abc\"\r\n\r\n";
