// Keeps state in every place that moves with a pod: memory, a mutable global, the function table, a channel
// and the clock. GET / counts one further, GET /state only looks; both answer the state as JSON.
#include "answer.h"

// A WebAssembly global, not a variable in memory. C has no word for it, so it is declared in assembly.
__asm__(".globaltype counter_global, i32\n"
        ".globl counter_global\n"
        "counter_global:\n");

static uint32_t global_get(void) {
    uint32_t value;
    __asm__ volatile("global.get counter_global\n"
                     "local.set %0"
                     : "=r"(value));
    return value;
}

static void global_set(uint32_t value) {
    __asm__ volatile("local.get %0\n"
                     "global.set counter_global"
                     :
                     : "r"(value));
}

static uint32_t add_one(uint32_t value) {
    return value + 1;
}

static uint32_t twice(uint32_t value) {
    return value * 2 + 1;
}

static uint32_t scramble(uint32_t value) {
    return (value ^ (value >> 7)) * 2654435761u;
}

// The state chooses which entry of the function table is called next.
static uint32_t (*volatile steps[])(uint32_t) = {add_one, twice, scramble};

static uint64_t count;
static uint64_t ticks;
static uint64_t restored;
static uint64_t heard;
static uint64_t seed;
static uint32_t mix;
static int32_t channel;
static char buffer[64];

K32_EXPORT(k32_init) void k32_init(void) {
    channel = kube32_channel_open("counter", 7);
    seed = (uint64_t)k32_instance_id();
}

// A random state that came with the snapshot would go on alike wherever the snapshot is restored: seed it
// anew.
K32_EXPORT(k32_restored) void k32_restored(void) {
    restored++;
    seed = (uint64_t)k32_instance_id();
}

// Tells the other counters of this node the count, and hears theirs.
K32_EXPORT(k32_tick) void k32_tick(void) {
    ticks++;
    kube32_channel_send(channel, &count, sizeof count);
    int32_t length;
    // A message that is longer than the buffer would stay where it is.
    while ((length = kube32_channel_recv(channel, buffer, sizeof buffer)) > 0 &&
           length <= (int32_t)sizeof buffer)
        heard++;
}

static void member(const char *name, uint64_t value) {
    answer_text(name);
    answer_number(value);
}

static void answer_state(void) {
    answer_header("Content-Type", "application/json");
    member("{\"count\":", count);
    member(",\"ticks\":", ticks);
    member(",\"global\":", global_get());
    member(",\"mix\":", mix);
    member(",\"time_ms\":", (uint64_t)k32_time_ms());
    member(",\"channel\":", (uint64_t)(channel < 0 ? 0 : channel));
    member(",\"heard\":", heard);
    member(",\"restored\":", restored);
    answer_text(",\"seed\":\"");
    answer_hex(seed);
    answer_text("\"}\n");
}

K32_EXPORT(k32_handle) void k32_handle(void) {
    int32_t length = k32_req_path(buffer, sizeof buffer);
    if (text_is(buffer, length, "/")) {
        mix = steps[count % (sizeof steps / sizeof steps[0])](mix);
        count++;
        global_set(global_get() + 1);
    } else if (!text_is(buffer, length, "/state")) {
        answer_not_found();
        return;
    }
    answer_state();
}
