// Writes a pod's HTTP answer in small pieces: text, numbers, JSON strings. No libc, no heap.
#ifndef ANSWER_H
#define ANSWER_H

#include "kube32.h"

static inline uint32_t text_length(const char *text) {
    uint32_t length = 0;
    while (text[length])
        length++;
    return length;
}

// Whether the `length` bytes at `bytes` are exactly `text`. A negative length (an error) is never equal.
static inline int text_is(const char *bytes, int32_t length, const char *text) {
    if (length < 0 || (uint32_t)length != text_length(text))
        return 0;
    for (int32_t i = 0; i < length; i++)
        if (bytes[i] != text[i])
            return 0;
    return 1;
}

// A copy-out function returns the full length, which may be more than the buffer holds.
static inline uint32_t copied(int32_t result, uint32_t cap) {
    if (result < 0)
        return 0;
    return (uint32_t)result < cap ? (uint32_t)result : cap;
}

// Decimal digits of `value` into `digits`; how many there are.
static inline uint32_t format_number(char digits[20], uint64_t value) {
    char reversed[20];
    uint32_t count = 0;
    do {
        reversed[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    for (uint32_t i = 0; i < count; i++)
        digits[i] = reversed[count - 1 - i];
    return count;
}

static inline void answer_text(const char *text) {
    k32_resp_write(text, text_length(text));
}

static inline void answer_number(uint64_t value) {
    char digits[20];
    k32_resp_write(digits, format_number(digits, value));
}

static inline void answer_hex(uint64_t value) {
    char digits[16];
    for (int i = 15; i >= 0; i--, value >>= 4)
        digits[i] = "0123456789abcdef"[value & 15];
    k32_resp_write(digits, sizeof digits);
}

// A JSON string with its quotes. The bytes must be UTF-8.
static inline void answer_json_string(const char *bytes, uint32_t length) {
    uint32_t written = 0;
    answer_text("\"");
    for (uint32_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        char escape[6] = {'\\', 'u', '0', '0', "0123456789abcdef"[c >> 4], "0123456789abcdef"[c & 15]};
        k32_resp_write(bytes + written, i - written);
        k32_resp_write(escape, sizeof escape);
        written = i + 1;
    }
    k32_resp_write(bytes + written, length - written);
    answer_text("\"");
}

static inline void answer_header(const char *name, const char *value) {
    k32_resp_header(name, text_length(name), value, text_length(value));
}

static inline void answer_not_found(void) {
    k32_resp_status(404);
    answer_header("Content-Type", "text/plain");
    answer_text("no such path\n");
}

#endif
