/* An echo server over libuv. It prints its port. */
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

static void allocate(uv_handle_t *handle, size_t size, uv_buf_t *buffer) {
    (void)handle;
    *buffer = uv_buf_init(malloc(size), (unsigned)size);
}

static void on_closed(uv_handle_t *handle) {
    free(handle);
}

static void on_written(uv_write_t *request, int status) {
    (void)status;
    free(request->data);
    free(request);
}

static void on_read(uv_stream_t *client, ssize_t count, const uv_buf_t *buffer) {
    if (count > 0) {
        uv_buf_t bytes = uv_buf_init(buffer->base, (unsigned)count);
        uv_write_t *request = malloc(sizeof *request);
        request->data = buffer->base;
        uv_write(request, client, &bytes, 1, on_written);
        return;
    }
    free(buffer->base);
    if (count < 0) uv_close((uv_handle_t *)client, on_closed);
}

static void on_connection(uv_stream_t *server, int status) {
    uv_tcp_t *client = malloc(sizeof *client);
    uv_tcp_init(server->loop, client);
    if (status == 0 && uv_accept(server, (uv_stream_t *)client) == 0)
        uv_read_start((uv_stream_t *)client, allocate, on_read);
    else
        uv_close((uv_handle_t *)client, on_closed);
}

int main(void) {
    uv_loop_t *loop = uv_default_loop();
    uv_tcp_t server;
    struct sockaddr_in address;
    int length = sizeof address;
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_init(loop, &server);
    uv_tcp_bind(&server, (struct sockaddr *)&address, 0);
    if (uv_listen((uv_stream_t *)&server, 128, on_connection) != 0) return 1;
    uv_tcp_getsockname(&server, (struct sockaddr *)&address, &length);
    printf("%d\n", (address.sin_port & 0xff) << 8 | address.sin_port >> 8);
    fflush(stdout);
    return uv_run(loop, UV_RUN_DEFAULT);
}
