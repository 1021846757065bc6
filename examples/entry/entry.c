// An entry-point pod: _start has its own thread, logs a line, sleeps and goes on. Its call stack is live at
// all times, so it cannot move: `kube32-cli move entry` is refused. With BEATS=N in its environment it ends
// after N.
#include "answer.h"

static char line[40] = "beat ";

static uint64_t beats_wanted(void) {
    char text[8];
    uint32_t length = copied(k32_env("BEATS", 5, text, sizeof text), sizeof text);
    uint64_t wanted = 0;
    for (uint32_t i = 0; i < length && text[i] >= '0' && text[i] <= '9'; i++)
        wanted = wanted * 10 + (uint64_t)(text[i] - '0');
    return wanted;
}

K32_EXPORT(_start) void _start(void) {
    uint64_t wanted = beats_wanted();
    for (uint64_t beat = 1;; beat++) {
        k32_log(line, 5 + format_number(line + 5, beat));
        if (beat == wanted)
            k32_exit(0);
        k32_sleep_ms(1000);
    }
}
