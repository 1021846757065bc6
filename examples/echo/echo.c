// Answers what it was asked, as plain text: method, path, query, some headers, then the body as it came.
// With GREETING in its environment it says that first.
#include "answer.h"

static const char *const shown_headers[] = {"Host", "User-Agent", "Accept", "Content-Type", "X-Request-Id"};
static char buffer[1024];

static void line(const char *label, int32_t length) {
    answer_text(label);
    answer_text(": ");
    k32_resp_write(buffer, copied(length, sizeof buffer));
    answer_text("\n");
}

K32_EXPORT(k32_handle) void k32_handle(void) {
    answer_header("Content-Type", "text/plain; charset=utf-8");
    int32_t length = k32_env("GREETING", 8, buffer, sizeof buffer);
    if (length >= 0)
        line("greeting", length);
    line("method", k32_req_method(buffer, sizeof buffer));
    line("path", k32_req_path(buffer, sizeof buffer));
    line("query", k32_req_query(buffer, sizeof buffer));
    for (uint32_t i = 0; i < sizeof shown_headers / sizeof shown_headers[0]; i++) {
        length = k32_req_header(shown_headers[i], text_length(shown_headers[i]), buffer, sizeof buffer);
        if (length >= 0)
            line(shown_headers[i], length);
    }
    answer_text("\n");
    int32_t offset = 0;
    while ((length = k32_req_body_read(offset, buffer, sizeof buffer)) > 0) {
        k32_resp_write(buffer, (uint32_t)length);
        offset += length;
    }
}
