// An entry-point pod that ends: it logs a greeting and exits with the code in its environment, 0 without one.
// Good for Jobs and init containers.
#include "answer.h"

static char line[80] = "hello from ";

K32_EXPORT(main) int32_t main_(void) {
    char text[8];
    uint32_t length = copied(k32_env("HOSTNAME", 8, line + 11, sizeof line - 11), sizeof line - 11);
    k32_log(line, 11 + length);
    int32_t code = 0;
    length = copied(k32_env("EXIT_CODE", 9, text, sizeof text), sizeof text);
    for (uint32_t i = 0; i < length && text[i] >= '0' && text[i] <= '9'; i++)
        code = code * 10 + (text[i] - '0');
    return code;
}
